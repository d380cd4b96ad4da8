// Shows the calls of this server with Swagger UI. Nothing is asked of anybody else: no validator, no fonts.
const dark = matchMedia("(prefers-color-scheme: dark)");
const paint = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
dark.addEventListener("change", paint);
paint();

SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#calls",
  docExpansion: "list",
  // It would take the error codes in links for calls.
  deepLinking: false,
  tryItOutEnabled: true,
  displayRequestDuration: true,
  defaultModelsExpandDepth: 0,
  validatorUrl: null,
});

// Problems link to their error code, which lies below the calls: it is kept in view while they come in.
const code = location.hash.slice(1);
const row = code && !code.startsWith("/") && document.getElementById(code);
if (row) {
  const follow = new ResizeObserver(() => row.scrollIntoView());
  follow.observe(document.getElementById("calls"));
  for (const event of ["wheel", "pointerdown", "keydown", "touchstart"]) {
    addEventListener(event, () => follow.disconnect(), { once: true, passive: true });
  }
}
