// SPDX-License-Identifier: Apache-2.0
// Loads a checkpoint with and without comparing checksums, in turn, by one
// process for each rank, each with other chunks:
//
//   load_bench --directory=D --gigabytes=2 --ranks=2 --rounds=7
//
// A round is one load in each way, from the page cache and from the disk.
// Prints the median seconds until the last rank has ended, and the median that
// checking adds in a round.
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "dcp/base/check.h"
#include "dcp/checkpoint/convert/convert.h"
#include "dcp/checkpoint/load/load.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/io/file_system.h"
#include "dcp/tensor/placement.h"
#include "tests/testing/sample_state.h"

ABSL_FLAG(std::string, directory, ".", "where the checkpoint is made");
ABSL_FLAG(double, gigabytes, 1, "size of the checkpoint, in 1e9 bytes");
ABSL_FLAG(uint32_t, ranks, 2, "processes that load");
ABSL_FLAG(uint32_t, rounds, 7, "loads of each kind");

namespace dcp {
namespace {

using testing::MemorySink;
using Clock = std::chrono::steady_clock;

constexpr uint64_t kRowElements = 4096;
constexpr uint64_t kNumTensors = 16;
constexpr uint32_t kMaxRanks = 16;

// Memory that the processes share.
struct Meeting {
  std::atomic<uint32_t> num_arrived{0};
  std::array<std::atomic<double>, kMaxRanks> seconds;

  void Wait(uint32_t num_ranks) {
    const uint32_t number = num_arrived.fetch_add(1);
    const uint32_t all = (number / num_ranks + 1) * num_ranks;
    while (num_arrived.load() < all) std::this_thread::yield();
  }
};

uint64_t NumRows() {
  const double bytes = absl::GetFlag(FLAGS_gigabytes) * 1e9;
  const auto rows = static_cast<uint64_t>(
      bytes / static_cast<double>(kNumTensors * kRowElements * sizeof(float)));
  return rows / kMaxRanks * kMaxRanks;
}

std::string TensorName(uint64_t number) {
  return absl::StrCat("layers.", number, ".weight");
}

FileSystem& Files() {
  static FileSystem& files = *NewPosixFileSystem().release();
  return files;
}

// Makes a DCP checkpoint with a file for each rank from a safetensors file with
// bytes that do not repeat.
void MakeCheckpoint(const std::string& path, uint32_t num_ranks) {
  const std::string whole = path + ".safetensors";
  const uint64_t tensor_bytes = NumRows() * kRowElements * sizeof(float);
  std::vector<std::string> entries;
  for (uint64_t i = 0; i < kNumTensors; ++i) {
    entries.push_back(absl::StrFormat(
        R"("%s":{"dtype":"F32","shape":[%d,%d],"data_offsets":[%d,%d]})",
        TensorName(i), NumRows(), kRowElements, i * tensor_bytes,
        (i + 1) * tensor_bytes));
  }
  std::string header = absl::StrCat("{", absl::StrJoin(entries, ","), "}");
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::ofstream file(whole, std::ios::binary);
  const uint64_t header_bytes = header.size();
  file.write(reinterpret_cast<const char*>(&header_bytes), 8);
  file << header;
  std::vector<uint64_t> row(kRowElements * sizeof(float) / sizeof(uint64_t));
  uint64_t number = 0;
  for (uint64_t i = 0; i < kNumTensors * NumRows(); ++i) {
    for (uint64_t& word : row) word = ++number * 0x9e3779b97f4a7c15;
    file.write(reinterpret_cast<const char*>(row.data()),
               static_cast<std::streamsize>(row.size() * sizeof(row[0])));
  }
  file.close();
  ConvertOptions options;
  options.to = Format::kDcp;
  options.mesh = *ParseMesh(absl::StrCat("shard=", num_ranks));
  options.overwrite = true;
  const absl::StatusOr<ConvertPlan> made =
      ConvertCheckpoint(Files(), whole, path, std::move(options));
  DCP_CHECK(made.ok(), made.status().message());
  std::filesystem::remove(whole);
}

// Puts the whole file into the page cache, or drops all of it from there.
void Prepare(const std::string& path, bool cached) {
  std::vector<char> buffer(size_t{4} << 20);
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    const int fd = open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
    DCP_CHECK(fd >= 0, "cannot open ", entry.path().string());
    if (cached) {
      while (read(fd, buffer.data(), buffer.size()) > 0) {
      }
    } else {
      fsync(fd);
      posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    }
    close(fd);
  }
}

// One rank's memory, and the contents.
struct RankState {
  std::vector<std::unique_ptr<MemorySink>> sinks;
  std::vector<LoadTensor> tensors;
};

RankState MakeState(uint32_t rank, uint32_t num_ranks) {
  RankState state;
  const auto rows = static_cast<int64_t>(NumRows());
  const int64_t share = rows / num_ranks;
  const auto row = static_cast<int64_t>(kRowElements);
  for (uint64_t i = 0; i < kNumTensors; ++i) {
    const uint64_t num_bytes =
        static_cast<uint64_t>(share) * kRowElements * sizeof(float);
    state.sinks.push_back(
        std::make_unique<MemorySink>(num_bytes, /*direct=*/true));
    state.tensors.push_back({.fqn = TensorName(i),
                             .dtype = DType::kFloat32,
                             .shape = {rows, row},
                             .box = {{share * rank, 0}, {share, row}},
                             .sink = state.sinks.back().get()});
  }
  return state;
}

double LoadSeconds(const std::string& path, RankState& state, bool verify) {
  const Clock::time_point begin = Clock::now();
  const auto checkpoint = Checkpoint::Open(Files(), path, {});
  DCP_CHECK(checkpoint.ok(), checkpoint.status().message());
  const absl::Status status =
      Load(Files(), **checkpoint, state.tensors, {.verify = verify});
  DCP_CHECK(status.ok(), status.message());
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void Report(const char* kind, const std::vector<double>& plain,
            const std::vector<double>& checked) {
  std::vector<double> added;
  for (size_t i = 0; i < plain.size(); ++i) {
    added.push_back(100 * (checked[i] / plain[i] - 1));
  }
  const auto [least, most] = std::minmax_element(added.begin(), added.end());
  absl::PrintF(
      "%-7s  %.3f s, checked %.3f s: %+.1f %% in the median, %+.1f to "
      "%+.1f %%\n",
      kind, Median(plain), Median(checked), Median(added), *least, *most);
  fflush(stdout);
}

// The rounds, on each rank.
void Run(const std::string& path, uint32_t rank, Meeting& meeting) {
  const uint32_t num_ranks = absl::GetFlag(FLAGS_ranks);
  RankState state = MakeState(rank, num_ranks);
  const auto seconds = [&](bool cached, bool verify) {
    if (rank == 0) Prepare(path, cached);
    meeting.Wait(num_ranks);
    meeting.seconds[rank] = LoadSeconds(path, state, verify);
    meeting.Wait(num_ranks);
    double longest = 0;
    for (uint32_t i = 0; i < num_ranks; ++i) {
      longest = std::max(longest, meeting.seconds[i].load());
    }
    meeting.Wait(num_ranks);
    return longest;
  };
  for (const bool cached : {true, false}) {
    seconds(cached, false);  // the state's pages are touched
    std::array<std::vector<double>, 2> times;
    for (uint32_t i = 0; i < absl::GetFlag(FLAGS_rounds); ++i) {
      // Neither kind is always the first.
      for (const bool verify : {i % 2 == 0, i % 2 != 0}) {
        times[verify].push_back(seconds(cached, verify));
      }
    }
    if (rank == 0) Report(cached ? "cached" : "cold", times[0], times[1]);
  }
}

int Main() {
  const uint32_t num_ranks = absl::GetFlag(FLAGS_ranks);
  DCP_CHECK(num_ranks >= 1 && num_ranks <= kMaxRanks, "ranks=", num_ranks);
  const std::string path =
      absl::StrCat(absl::GetFlag(FLAGS_directory), "/load_bench");
  MakeCheckpoint(path, num_ranks);
  void* memory = mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  DCP_CHECK(memory != MAP_FAILED, "no memory to share");
  auto* meeting = new (memory) Meeting();
  std::vector<pid_t> children;
  for (uint32_t rank = 0; rank < num_ranks; ++rank) {
    const pid_t child = fork();
    DCP_CHECK(child >= 0, "cannot fork");
    if (child == 0) {
      Run(path, rank, *meeting);
      _exit(0);
    }
    children.push_back(child);
  }
  int result = 0;
  for (const pid_t child : children) {
    int status = 0;
    if (waitpid(child, &status, 0) != child || status != 0) result = 1;
  }
  std::filesystem::remove_all(path);
  return result;
}

}  // namespace
}  // namespace dcp

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return dcp::Main();
}
