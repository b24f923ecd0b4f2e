// SPDX-License-Identifier: Apache-2.0
// ATen's CUDA headers declare functions with cuBLAS's handle and status. They
// need only these declarations; the library itself is 400 MB.
#ifndef THIRD_PARTY_LIBTORCH_STAND_INS_CUBLAS_V2_H_
#define THIRD_PARTY_LIBTORCH_STAND_INS_CUBLAS_V2_H_

typedef struct cublasContext* cublasHandle_t;
enum cublasStatus_t : int;

#endif  // THIRD_PARTY_LIBTORCH_STAND_INS_CUBLAS_V2_H_
