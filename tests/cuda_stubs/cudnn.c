// cuDNN without a GPU: each convolution has one engine without knobs, notes or workspace, and running it does nothing.
// `stub_plans` counts the execution plans, which take cuDNN milliseconds to seconds each on a GPU.
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

enum { EXECUTION_PLAN = 5 };                                             // cudnnBackendDescriptorType_t
enum { KNOB_INFO = 302, NUMERICAL_NOTE = 1303, BEHAVIOR_NOTE = 1305 };   // cudnnBackendAttributeName_t
enum { INT64 = 3, INT32 = 23 };                                          // cudnnBackendAttributeType_t

static int plans;

int stub_plans(void) { return plans; }

int cudnnBackendCreateDescriptor(int type, void **descriptor) {
  int *created = malloc(sizeof *created);
  *created = type;
  return *descriptor = created, 0;
}

int cudnnBackendDestroyDescriptor(void *descriptor) { return free(descriptor), 0; }

int cudnnBackendFinalize(int *descriptor) {
  plans += *descriptor == EXECUTION_PLAN;
  return 0;
}

int cudnnBackendGetAttribute(
    void *descriptor, int name, int type, int64_t capacity, int64_t *count, void *values) {
  if (count) *count = name != KNOB_INFO && name != NUMERICAL_NOTE && name != BEHAVIOR_NOTE;
  if (values && capacity > 0 && type == INT64) *(int64_t *)values = 0;
  if (values && capacity > 0 && type == INT32) *(int32_t *)values = 0;
  return 0;
}

size_t cudnnGetVersion(void) { return 92800; }
int cudnnGetProperty(int type, int *value) { return *value = (int[]){9, 28, 0}[type], 0; }
const char *cudnnGetErrorString(int status) { return "stub"; }
