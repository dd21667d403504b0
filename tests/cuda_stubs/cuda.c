// The driver without a GPU: one device named Stub.
#include <string.h>

int cuInit(unsigned flags) { return 0; }
int cuDeviceGet(int *device, int index) { return *device = 0, 0; }
int cuDeviceGetName(char *name, int size, int device) { return strncpy(name, "Stub", size), 0; }
int cuTensorMapEncodeTiled(void) { return 0; }
