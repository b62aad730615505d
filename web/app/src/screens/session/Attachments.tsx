import { Button } from "../../ui/Button.tsx";

export type Attachment = { name: string; mimeType: string; data: string };

const IMAGE_BYTES_MAX = 8_000_000;
const TYPES = ["image/png", "image/jpeg", "image/gif", "image/webp"];

function base64(file: File): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result).replace(/^[^,]*,/, ""));
    reader.onerror = () => reject(reader.error ?? new Error("The file cannot be read"));
    reader.readAsDataURL(file);
  });
}

export async function readImages(files: Iterable<File>): Promise<{ images: Attachment[]; refused: string[] }> {
  const [images, refused]: [Attachment[], string[]] = [[], []];
  for (const file of files) {
    if (!TYPES.includes(file.type) || file.size > IMAGE_BYTES_MAX) refused.push(file.name || file.type || "The file");
    else images.push({ name: file.name || "image", mimeType: file.type, data: await base64(file) });
  }
  return { images, refused };
}

export function Attachments({ list, onRemove }: { list: readonly Attachment[]; onRemove: (at: number) => void }) {
  if (list.length === 0) return null;
  return (
    <ul class="attachments" aria-label="Attached images">
      {list.map((image, at) => (
        <li key={at}>
          <img src={`data:${image.mimeType};base64,${image.data}`} alt={image.name} />
          <Button icon="close" dense label={`Remove ${image.name}`} onClick={() => onRemove(at)} />
        </li>
      ))}
    </ul>
  );
}
