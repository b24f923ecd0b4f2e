// SPDX-License-Identifier: Apache-2.0

#include "dcp/base/streaming_copy.h"

#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace dcp {
#if defined(__SSE2__)
namespace {

constexpr size_t kLineBytes = 64;

// Shorter copies do not harm the cache, and their ends cost more than streaming
// saves.
constexpr size_t kMinStreamedBytes = 4096;

// How far ahead of the copy the source is prefetched.
constexpr size_t kAheadBytes = 1024;

}  // namespace

void StreamingCopy(uint8_t* dst, const uint8_t* src, size_t size) {
  if (size < kMinStreamedBytes) {
    if (size > 0) std::memcpy(dst, src, size);
    return;
  }
  const size_t head =
      (kLineBytes - reinterpret_cast<uintptr_t>(dst) % kLineBytes) % kLineBytes;
  std::memcpy(dst, src, head);
  size_t at = head;
  for (; at + kLineBytes <= size; at += kLineBytes) {
    // This is only a hint, so it may point past the end.
    _mm_prefetch(reinterpret_cast<const char*>(src + at + kAheadBytes),
                 _MM_HINT_NTA);
    const auto* from = reinterpret_cast<const __m128i*>(src + at);
    auto* to = reinterpret_cast<__m128i*>(dst + at);
    const __m128i a = _mm_loadu_si128(from);
    const __m128i b = _mm_loadu_si128(from + 1);
    const __m128i c = _mm_loadu_si128(from + 2);
    const __m128i d = _mm_loadu_si128(from + 3);
    _mm_stream_si128(to, a);
    _mm_stream_si128(to + 1, b);
    _mm_stream_si128(to + 2, c);
    _mm_stream_si128(to + 3, d);
  }
  std::memcpy(dst + at, src + at, size - at);
  _mm_sfence();
}

#else

void StreamingCopy(uint8_t* dst, const uint8_t* src, size_t size) {
  if (size > 0) std::memcpy(dst, src, size);
}

#endif
}  // namespace dcp
