/** Exit code 0 when the process in this container answers HEALTH_PATH with 200. */
const url = `http://127.0.0.1:${process.env.HEALTH_PORT}${process.env.HEALTH_PATH}`;
try {
  const { status } = await fetch(url, { signal: AbortSignal.timeout(2_000) });
  process.exitCode = status === 200 ? 0 : 1;
  console.log(`${url}: ${status}`);
} catch (error) {
  process.exitCode = 1;
  console.log(`${url}: ${error}`);
}
