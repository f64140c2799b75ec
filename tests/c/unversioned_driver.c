/* A driver library of a kind that dlvsym can look into: it names no versions and needs no library that does. */
int cuInit(unsigned flags) { return (int)flags; }
int cuMemAlloc_v2(unsigned long long *address, unsigned long bytes) { return address && bytes ? 2 : 1; }
int unhooked(void) { return 0; }
