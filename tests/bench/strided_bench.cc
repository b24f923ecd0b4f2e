// SPDX-License-Identifier: Apache-2.0
// Times copies between memories with different strides, and compares them with
// a memcpy of as many bytes and with a loop over elements. Prints a table in
// GB/s of bytes copied, the median over all repetitions:
//
//   strided_bench [--repeat=N]
//
// The copies, with elements of 1 to 16 bytes: a transposed matrix of 32 MiB;
// the part of a transposed matrix that one 4 MiB read gives; 96 rows in a
// stripe, that were collected from as many reads, and one such row, in a
// transposed matrix with 16,384 rows; every second element (gate and up in
// gpt-oss); and rows of 2 KiB in another order (a rotary permutation).

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "dcp/base/check.h"
#include "dcp/tensor/strided_copy.h"

namespace dcp {
namespace {

constexpr uint64_t kBytes = uint64_t{32} << 20;
constexpr uint64_t kPitch = 8192;  // bytes per row in the transposed matrices

struct Workload {
  std::string name;
  uint64_t unit_bytes;
  std::vector<CopyLoop> loops;
};

uint64_t NumBytes(const Workload& workload) {
  uint64_t bytes = workload.unit_bytes;
  for (const CopyLoop& loop : workload.loops) bytes *= loop.count;
  return bytes;
}

std::vector<Workload> Workloads() {
  std::vector<Workload> all;
  for (const uint64_t element : {1, 2, 4, 8, 16}) {
    const uint64_t columns = kPitch / element;
    for (const uint64_t bytes : {kBytes, uint64_t{4} << 20}) {
      // A read holds some of a large matrix's rows.
      const uint64_t rows = bytes / kPitch;
      all.push_back(
          {absl::StrCat("transpose ", bytes >> 20, " MiB of ", element,
                        " bytes"),
           element,
           {{columns, element, kBytes / columns}, {rows, kPitch, element}}});
    }
    // In the destination, a row has 16,384 elements, and these as many columns
    // as fit.
    constexpr uint64_t kRows = 16384;
    const uint64_t stripe = kBytes / (kRows * element);
    for (const uint64_t rows : {96, 1}) {
      all.push_back(
          {absl::StrCat(rows, " rows of ", stripe, " x ", element, " bytes"),
           element,
           {{stripe, element, kRows * element}, {rows, kPitch, element}}});
    }
    all.push_back({absl::StrCat("interleave ", element, " bytes"),
                   element,
                   {{kBytes / 2 / element, element, 2 * element}}});
  }
  constexpr uint64_t kRow = 2048;
  all.push_back({"rows of 2048 bytes",
                 kRow,
                 {{128, 128 * kRow, 128 * kRow},
                  {2, 64 * kRow, kRow},
                  {64, kRow, 2 * kRow}}});
  return all;
}

void CopyNaively(const uint8_t* src, uint8_t* dst, uint64_t unit_bytes,
                 absl::Span<const CopyLoop> loops) {
  if (loops.empty()) {
    std::memcpy(dst, src, unit_bytes);
    return;
  }
  for (uint64_t i = 0; i < loops[0].count; ++i) {
    CopyNaively(src + i * loops[0].src_stride, dst + i * loops[0].dst_stride,
                unit_bytes, loops.subspan(1));
  }
}

template <typename Run>
double GigabytesPerSecond(uint64_t num_bytes, int repeat, const Run& run) {
  std::vector<double> seconds;
  for (int i = 0; i < repeat; ++i) {
    const auto start = std::chrono::steady_clock::now();
    run();
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
            .count());
  }
  std::sort(seconds.begin(), seconds.end());
  return static_cast<double>(num_bytes) / seconds[seconds.size() / 2] / 1e9;
}

void Run(int repeat) {
  std::vector<uint8_t> src(kBytes + kPitch);
  for (size_t i = 0; i < src.size(); ++i) src[i] = static_cast<uint8_t>(i * 7);
  std::vector<uint8_t> memory(kBytes + kPitch);
  uint8_t* const dst =
      memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64);
  std::printf("%-32s %8s %8s %8s\n", "GB/s", "memcpy", "loop", "strided");
  for (const Workload& workload : Workloads()) {
    const uint64_t num_bytes = NumBytes(workload);
    const double memcpy_speed = GigabytesPerSecond(
        num_bytes, repeat, [&] { std::memcpy(dst, src.data(), num_bytes); });
    const double loop_speed = GigabytesPerSecond(num_bytes, repeat, [&] {
      CopyNaively(src.data(), dst, workload.unit_bytes, workload.loops);
    });
    const double strided_speed = GigabytesPerSecond(num_bytes, repeat, [&] {
      CopyStrided({src.data(), dst}, workload.unit_bytes, workload.loops);
    });
    std::printf("%-32s %8.2f %8.2f %8.2f\n", workload.name.c_str(),
                memcpy_speed, loop_speed, strided_speed);
  }
}

}  // namespace
}  // namespace dcp

int main(int argc, char** argv) {
  int repeat = 9;
  for (int i = 1; i < argc; ++i) {
    absl::string_view value = argv[i];
    const bool valid = absl::ConsumePrefix(&value, "--repeat=") &&
                       absl::SimpleAtoi(value, &repeat) && repeat > 0;
    DCP_CHECK(valid, "unknown argument ", argv[i]);
  }
  dcp::Run(repeat);
  return 0;
}
