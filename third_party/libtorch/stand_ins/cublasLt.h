// SPDX-License-Identifier: Apache-2.0
// Replaces cuBLASLt's header; see cublas_v2.h.
#ifndef THIRD_PARTY_LIBTORCH_STAND_INS_CUBLASLT_H_
#define THIRD_PARTY_LIBTORCH_STAND_INS_CUBLASLT_H_

typedef struct cublasLtContext* cublasLtHandle_t;

#endif  // THIRD_PARTY_LIBTORCH_STAND_INS_CUBLASLT_H_
