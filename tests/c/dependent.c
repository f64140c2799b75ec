/* A plug-in that was linked against the driver and another library. */
void *dependency_asks(const char *name);

void *plugin_asks(const char *name) { return dependency_asks(name); }
