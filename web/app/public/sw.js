// The shell only: the page and its files, so that an installed app opens without a network. Nothing of the API is ever
// kept: sessions belong to the server.
// The build writes its own name here: another build is another worker, which removes the files of the one before.
const CACHE = "piton-shell-BUILD";

self.addEventListener("install", (event) => {
  event.waitUntil(caches.open(CACHE).then((cache) => cache.add("/")).then(() => self.skipWaiting()));
});

self.addEventListener("activate", (event) => {
  const old = caches.keys().then((names) => Promise.all(names.filter((name) => name !== CACHE).map((name) => caches.delete(name))));
  event.waitUntil(old.then(() => self.clients.claim()));
});

/** Files of a build have their content's hash in their name. */
function isShell(url) {
  return url.origin === location.origin && (url.pathname === "/" || url.pathname.startsWith("/assets/"));
}

self.addEventListener("fetch", (event) => {
  const url = new URL(event.request.url);
  if (event.request.method !== "GET" || !isShell(url)) return;
  event.respondWith(
    (async () => {
      const cache = await caches.open(CACHE);
      const isHashed = url.pathname.startsWith("/assets/");
      const kept = await cache.match(event.request);
      if (isHashed && kept) return kept;
      try {
        const answer = await fetch(event.request);
        if (answer.ok) await cache.put(event.request, answer.clone());
        return answer;
      } catch (error) {
        if (kept) return kept;
        throw error;
      }
    })(),
  );
});

self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  const path = `/${event.notification.data ?? "#/"}`;
  event.waitUntil(
    self.clients.matchAll({ type: "window", includeUncontrolled: true }).then(async (pages) => {
      const page = pages[0];
      if (!page) return self.clients.openWindow(path);
      await page.focus();
      return page.navigate(path);
    }),
  );
});
