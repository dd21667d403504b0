// The CUDA runtime without a GPU: one device of compute capability 9.0, whose memory is the host's. Kernels do nothing.
// While a stream is captured, the calls that CUDA forbids then fail, and so do copies from and to the host: CUDA records
// their address, but ONNX Runtime uses that memory for something else later. `stub_recorded` counts the graphs,
// `stub_launched` their launches, and `stub_uploaded` the copies from the host to the device.
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, OUT_OF_MEMORY = 2, CAPTURE_UNSUPPORTED = 900 };
enum { TO_DEVICE = 1, DEVICE_TO_DEVICE = 3 };  // cudaMemcpyKind
enum { WARP_SIZE = 10, MULTIPROCESSORS = 16, MAJOR = 75, MINOR = 76, SHARED_MEMORY_OPTIN = 97 };  // cudaDeviceAttr

static int capturing, recorded, launched, uploaded;

int stub_recorded(void) { return recorded; }
int stub_launched(void) { return launched; }
int stub_uploaded(void) { return uploaded; }

static int allocate(void **pointer, size_t size) {
  if (capturing) return CAPTURE_UNSUPPORTED;
  *pointer = malloc(size ? size : 1);
  return *pointer ? SUCCESS : OUT_OF_MEMORY;
}

static int copy(void *target, const void *source, size_t size, int kind) {
  uploaded += kind == TO_DEVICE;
  memmove(target, source, size);
  return SUCCESS;
}

int cudaMalloc(void **pointer, size_t size) { return allocate(pointer, size); }
int cudaMallocHost(void **pointer, size_t size) { return allocate(pointer, size); }
int cudaHostAlloc(void **pointer, size_t size, unsigned flags) { return allocate(pointer, size); }
int cudaFree(void *pointer) { return capturing ? CAPTURE_UNSUPPORTED : (free(pointer), SUCCESS); }
int cudaFreeHost(void *pointer) { return free(pointer), SUCCESS; }

int cudaMemcpy(void *target, const void *source, size_t size, int kind) {
  return capturing ? CAPTURE_UNSUPPORTED : copy(target, source, size, kind);
}
int cudaMemcpyAsync(void *target, const void *source, size_t size, int kind, void *stream) {
  return capturing && kind != DEVICE_TO_DEVICE ? CAPTURE_UNSUPPORTED : copy(target, source, size, kind);
}
int cudaMemset(void *target, int value, size_t size) { return memset(target, value, size), SUCCESS; }
int cudaMemsetAsync(void *target, int value, size_t size, void *stream) {
  return memset(target, value, size), SUCCESS;
}
int cudaMemGetInfo(size_t *free_bytes, size_t *total) {
  *free_bytes = 15ul << 30;
  *total = 16ul << 30;
  return SUCCESS;
}

int cudaStreamBeginCapture(void *stream, int mode) { return capturing = 1, SUCCESS; }
int cudaStreamIsCapturing(void *stream, int *status) { return *status = capturing, SUCCESS; }
int cudaStreamEndCapture(void *stream, void **graph) {
  capturing = 0;
  ++recorded;
  return *graph = malloc(1), SUCCESS;
}
int cudaGraphInstantiate(void **executable, void *graph, unsigned long long flags) {
  return *executable = malloc(1), SUCCESS;
}
int cudaGraphLaunch(void *executable, void *stream) { return ++launched, SUCCESS; }
int cudaStreamSynchronize(void *stream) { return capturing ? CAPTURE_UNSUPPORTED : SUCCESS; }
int cudaDeviceSynchronize(void) { return capturing ? CAPTURE_UNSUPPORTED : SUCCESS; }
int cudaEventSynchronize(void *event) { return capturing ? CAPTURE_UNSUPPORTED : SUCCESS; }

int cudaGetDevice(int *device) { return *device = 0, SUCCESS; }
int cudaGetDeviceCount(int *count) { return *count = 1, SUCCESS; }
int cudaDriverGetVersion(int *version) { return *version = 13000, SUCCESS; }
int cudaRuntimeGetVersion(int *version) { return *version = 13000, SUCCESS; }
int cudaPointerGetAttributes(void *attributes, const void *pointer) { return memset(attributes, 0, 32), SUCCESS; }

int cudaDeviceGetAttribute(int *value, int attribute, int device) {
  switch (attribute) {
    case MAJOR: *value = 9; break;
    case MINOR: *value = 0; break;
    case WARP_SIZE: *value = 32; break;
    case MULTIPROCESSORS: *value = 132; break;
    case SHARED_MEMORY_OPTIN: *value = 227 << 10; break;
    default: *value = 1024;
  }
  return SUCCESS;
}

// cudaDeviceProp of CUDA 13 (driver_types.h).
struct properties {
  char name[256], uuid[16], luid[8];
  unsigned node_mask;
  size_t memory, shared_memory;
  int registers, warp_size;
  size_t pitch;
  int threads, block[3], grid[3];
  size_t constant_memory;
  int major, minor;
  size_t texture_alignment, texture_pitch;
  int multiprocessors, others[54], threads_per_multiprocessor;
  char rest[400];
};

int cudaGetDeviceProperties(struct properties *found, int device) {
  memset(found, 0, sizeof *found);
  strcpy(found->name, "Stub");
  found->memory = 16ul << 30;
  found->shared_memory = 48 << 10;
  found->registers = 1 << 16;
  found->warp_size = 32;
  found->threads = found->block[0] = found->block[1] = 1024;
  found->block[2] = 64;
  found->grid[0] = 0x7fffffff;
  found->grid[1] = found->grid[2] = 0xffff;
  found->constant_memory = 1 << 16;
  found->major = 9;
  found->multiprocessors = 132;
  found->threads_per_multiprocessor = 2048;
  return SUCCESS;
}

int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int *blocks, const void *kernel, int threads, size_t shared_memory, unsigned flags) {
  return *blocks = 1, SUCCESS;
}

const char *cudaGetErrorName(int error) { return "stub"; }
const char *cudaGetErrorString(int error) { return "stub"; }
void **__cudaRegisterFatBinary(void *binary) { return malloc(8); }
