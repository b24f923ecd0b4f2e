// SPDX-License-Identifier: Apache-2.0
// Replaces cuSOLVER's header; see cublas_v2.h.
#ifndef THIRD_PARTY_LIBTORCH_STAND_INS_CUSOLVERDN_H_
#define THIRD_PARTY_LIBTORCH_STAND_INS_CUSOLVERDN_H_

typedef struct cusolverDnContext* cusolverDnHandle_t;

#endif  // THIRD_PARTY_LIBTORCH_STAND_INS_CUSOLVERDN_H_
