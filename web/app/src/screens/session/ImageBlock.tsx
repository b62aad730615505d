/** Raster images only: an SVG is a document. */
const RASTER = /^image\/(png|jpeg|gif|webp)$/;
const BASE64 = /^[A-Za-z0-9+/=\s]+$/;

export function ImageBlock({ data, mimeType, alt }: { data: string; mimeType: string; alt?: string }) {
  if (!RASTER.test(mimeType) || !BASE64.test(data)) return <p class="muted small">An image of type {mimeType} is not shown.</p>;
  return <img class="image-block" src={`data:${mimeType};base64,${data}`} alt={alt ?? "Image"} loading="lazy" />;
}
