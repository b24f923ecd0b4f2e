// SPDX-License-Identifier: Apache-2.0
// Replaces cuSPARSE's header; see cublas_v2.h.
#ifndef THIRD_PARTY_LIBTORCH_STAND_INS_CUSPARSE_H_
#define THIRD_PARTY_LIBTORCH_STAND_INS_CUSPARSE_H_

typedef struct cusparseContext* cusparseHandle_t;
enum cusparseStatus_t : int;

#endif  // THIRD_PARTY_LIBTORCH_STAND_INS_CUSPARSE_H_
