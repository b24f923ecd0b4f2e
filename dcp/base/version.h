// SPDX-License-Identifier: Apache-2.0
// The version that --version prints, as in CHANGELOG.md.
#ifndef DCP_BASE_VERSION_H_
#define DCP_BASE_VERSION_H_

namespace dcp {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace dcp

#endif  // DCP_BASE_VERSION_H_
