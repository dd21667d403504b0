// cuBLAS 13.1.2 without a GPU.
int cublasGetProperty(int type, int *value) { return *value = (int[]){13, 1, 2}[type], 0; }
int cublasGetMathMode(void *handle, int *mode) { return *mode = 0, 0; }
const char *cublasGetStatusName(int status) { return "stub"; }
const char *cublasGetStatusString(int status) { return "stub"; }
