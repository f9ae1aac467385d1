// SPDX-License-Identifier: Apache-2.0
// NVIDIA's libraries, as PyTorch and CuPy use them: each call's own answer. They ask of a driver
// what nothing else does (tables without documentation, scratch memory by stream, kernels by
// enumeration). What they compute is not looked at, so that the program also runs where their
// machine code cannot be executed.
#include <cublas_v2.h>
#include <cufft.h>
#include <curand.h>
#include <cusolverDn.h>
#include <cusparse.h>

#include <vector>

#include "check.h"

namespace {

constexpr int kSize = 64;
constexpr size_t kMatrixBytes = size_t{kSize} * kSize * 16;

class Libraries {
 public:
  Libraries(Program* program, cudaStream_t stream) : program_(*program), stream_(stream) {
    for (void** matrix : {&a_, &b_, &c_, &work_}) {
      const size_t size_bytes = matrix == &work_ ? size_t{16} << 20 : kMatrixBytes;
      program_.Ok(cudaMalloc(matrix, size_bytes));
      program_.Ok(cudaMemset(*matrix, 0, size_bytes));
    }
    program_.Ok(cudaMalloc(&info_, 4096));
    program_.Ok(cudaMemset(info_, 0, 4096));
  }
  ~Libraries() {
    program_.Ok(cudaDeviceSynchronize());
    for (void* memory : {a_, b_, c_, work_, static_cast<void*>(info_)}) cudaFree(memory);
  }

  void Blas() {
    cublasHandle_t handle;
    Done(cublasCreate(&handle), "cublasCreate");
    Done(cublasSetStream(handle, stream_), "cublasSetStream");
    const float one = 1, zero = 0;
    float number;
    int index;
    Done(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_T, kSize, kSize, kSize, &one, A(), kSize, B(),
                     kSize, &zero, C(), kSize),
         "cublasSgemm");
    Done(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, kSize, kSize, kSize, &one, a_, CUDA_R_16F,
                      kSize, b_, CUDA_R_16F, kSize, &zero, c_, CUDA_R_16F, kSize,
                      CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
         "cublasGemmEx");
    Done(cublasSgemv(handle, CUBLAS_OP_T, kSize, kSize, &one, A(), kSize, B(), 1, &zero, C(), 1),
         "cublasSgemv");
    Done(cublasSdot(handle, kSize, A(), 1, B(), 1, &number), "cublasSdot");
    Done(cublasSnrm2(handle, kSize, A(), 1, &number), "cublasSnrm2");
    Done(cublasIsamax(handle, kSize, A(), 1, &index), "cublasIsamax");
    Done(cublasStrsm(handle, CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_LOWER, CUBLAS_OP_N,
                     CUBLAS_DIAG_UNIT, kSize, kSize, &one, A(), kSize, B(), kSize),
         "cublasStrsm");
    Done(cublasDestroy(handle), "cublasDestroy");
  }

  void Solver() {
    cusolverDnHandle_t handle;
    Done(cusolverDnCreate(&handle), "cusolverDnCreate");
    Done(cusolverDnSetStream(handle, stream_), "cusolverDnSetStream");
    int size = 0;
    Done(cusolverDnSgeqrf_bufferSize(handle, kSize, kSize, A(), kSize, &size), "geqrf's size");
    Done(cusolverDnSgeqrf(handle, kSize, kSize, A(), kSize, C(), Work(), size, info_),
         "cusolverDnSgeqrf");
    Done(cusolverDnSgetrf_bufferSize(handle, kSize, kSize, A(), kSize, &size), "getrf's size");
    Done(cusolverDnSgetrf(handle, kSize, kSize, A(), kSize, Work(), info_ + 8, info_),
         "cusolverDnSgetrf");
    Done(cusolverDnSsyevd_bufferSize(handle, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_LOWER,
                                     kSize, A(), kSize, B(), &size),
         "syevd's size");
    Done(cusolverDnSsyevd(handle, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_LOWER, kSize, A(),
                          kSize, B(), Work(), size, info_),
         "cusolverDnSsyevd");
    Done(cusolverDnDestroy(handle), "cusolverDnDestroy");
  }

  void Sparse() {
    cusparseHandle_t handle;
    Done(cusparseCreate(&handle), "cusparseCreate");
    Done(cusparseSetStream(handle, stream_), "cusparseSetStream");
    cusparseSpMatDescr_t matrix;
    cusparseDnVecDescr_t x, y;
    const float one = 1, zero = 0;
    size_t size_bytes = 0;
    Done(cusparseCreateCsr(&matrix, kSize, kSize, kSize, info_, info_, a_, CUSPARSE_INDEX_32I,
                           CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO, CUDA_R_32F),
         "cusparseCreateCsr");
    Done(cusparseCreateDnVec(&x, kSize, b_, CUDA_R_32F), "cusparseCreateDnVec");
    Done(cusparseCreateDnVec(&y, kSize, c_, CUDA_R_32F), "cusparseCreateDnVec");
    Done(cusparseSpMV_bufferSize(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, &one, matrix, x, &zero,
                                 y, CUDA_R_32F, CUSPARSE_SPMV_ALG_DEFAULT, &size_bytes),
         "SpMV's size");
    Done(cusparseSpMV(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, &one, matrix, x, &zero, y,
                      CUDA_R_32F, CUSPARSE_SPMV_ALG_DEFAULT, work_),
         "cusparseSpMV");
    Done(cusparseDestroySpMat(matrix), "cusparseDestroySpMat");
    Done(cusparseDestroyDnVec(x), "cusparseDestroyDnVec");
    Done(cusparseDestroyDnVec(y), "cusparseDestroyDnVec");
    Done(cusparseDestroy(handle), "cusparseDestroy");
  }

  void Transforms() {
    cufftHandle plan;
    Done(cufftPlan1d(&plan, 1024, CUFFT_C2C, 1), "cufftPlan1d");
    Done(cufftSetStream(plan, stream_), "cufftSetStream");
    auto* work = static_cast<cufftComplex*>(work_);
    Done(cufftExecC2C(plan, work, work, CUFFT_FORWARD), "cufftExecC2C");
    Done(cufftDestroy(plan), "cufftDestroy");
    Done(cufftPlan2d(&plan, 96, 100, CUFFT_R2C), "cufftPlan2d");
    Done(cufftExecR2C(plan, Work(), work), "cufftExecR2C");
    Done(cufftDestroy(plan), "cufftDestroy");
  }

  void Random() {
    curandGenerator_t generator;
    Done(curandCreateGenerator(&generator, CURAND_RNG_PSEUDO_DEFAULT), "curandCreateGenerator");
    Done(curandSetStream(generator, stream_), "curandSetStream");
    Done(curandGenerateNormal(generator, A(), kSize, 0, 1), "curandGenerateNormal");
    Done(curandDestroyGenerator(generator), "curandDestroyGenerator");
  }

 private:
  // As Program::Ok: behind a failed call nothing can be trusted.
  template <typename Status>
  void Done(Status status, const char* what) {
    if (static_cast<int>(status) == 0) return;
    std::printf("FAIL libraries: %s returned %d\n", what, static_cast<int>(status));
    std::fflush(stdout);
    std::exit(1);
  }
  float* A() const { return static_cast<float*>(a_); }
  float* B() const { return static_cast<float*>(b_); }
  float* C() const { return static_cast<float*>(c_); }
  float* Work() const { return static_cast<float*>(work_); }

  Program& program_;
  cudaStream_t stream_;
  void *a_ = nullptr, *b_ = nullptr, *c_ = nullptr, *work_ = nullptr;
  int* info_ = nullptr;
};

}  // namespace

int main() {
  Program program("libraries");
  cudaStream_t own;
  program.Ok(cudaStreamCreate(&own));
  for (cudaStream_t stream : {cudaStream_t{}, own}) {
    Libraries libraries(&program, stream);
    libraries.Blas();
    libraries.Solver();
    libraries.Sparse();
    libraries.Transforms();
    libraries.Random();
  }
  program.Ok(cudaStreamDestroy(own));
  return program.Finish("streams=2");
}
