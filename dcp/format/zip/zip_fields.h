// SPDX-License-Identifier: Apache-2.0
// Sizes and flags for the records in a zip archive (PKWARE's APPNOTE, 4.3 and
// 4.4), shared by the reader and the writer. Pure.
#ifndef DCP_FORMAT_ZIP_ZIP_FIELDS_H_
#define DCP_FORMAT_ZIP_ZIP_FIELDS_H_

#include <cstdint>

namespace dcp {

// Record bytes without names and extra fields.
inline constexpr uint64_t kZipLocalBytes = 30;
inline constexpr uint64_t kZipCentralBytes = 46;
inline constexpr uint64_t kZipEndBytes = 22;
inline constexpr uint64_t kZip64EndBytes = 56;
inline constexpr uint64_t kZip64LocatorBytes = 20;

// A field with this value refers to a zip64 field, which holds the number.
inline constexpr uint64_t kZipSaturated32 = 0xffffffff;
inline constexpr uint64_t kZipSaturated16 = 0xffff;

// The sizes and the CRC-32 follow the payload.
inline constexpr uint16_t kZipFlagDescriptor = 1u << 3;

}  // namespace dcp

#endif  // DCP_FORMAT_ZIP_ZIP_FIELDS_H_
