// SPDX-License-Identifier: Apache-2.0
// Replaces cuSOLVER's header; see cublas_v2.h.
#ifndef THIRD_PARTY_LIBTORCH_STAND_INS_CUSOLVER_COMMON_H_
#define THIRD_PARTY_LIBTORCH_STAND_INS_CUSOLVER_COMMON_H_

enum cusolverStatus_t : int;

#endif  // THIRD_PARTY_LIBTORCH_STAND_INS_CUSOLVER_COMMON_H_
