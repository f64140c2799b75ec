/* The second of two libraries that define the same function. */
const char *chain(void) { return "second"; }
