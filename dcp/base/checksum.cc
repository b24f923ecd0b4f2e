// SPDX-License-Identifier: Apache-2.0

#include "dcp/base/checksum.h"

#include <libdeflate.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace dcp {

uint32_t ExtendCrc32(uint32_t crc, ByteSpan bytes) {
  if (bytes.empty()) return crc;  // libdeflate reads null as "restart"
  return libdeflate_crc32(crc, bytes.data(), bytes.size());
}

struct Digest64::State {
  XXH3_state_t xxh;
};

Digest64::Digest64() : state_(std::make_unique<State>()) { Reset(); }
Digest64::~Digest64() = default;
Digest64::Digest64(Digest64&&) noexcept = default;
Digest64& Digest64::operator=(Digest64&&) noexcept = default;

void Digest64::Reset() { XXH3_64bits_reset(&state_->xxh); }

void Digest64::Update(ByteSpan bytes) {
  XXH3_64bits_update(&state_->xxh, bytes.data(), bytes.size());
}

uint64_t Digest64::Value() const { return XXH3_64bits_digest(&state_->xxh); }

uint64_t Xxh3Digest(ByteSpan bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

}  // namespace dcp
