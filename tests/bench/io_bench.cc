// SPDX-License-Identifier: Apache-2.0
// Copies a file through the pipeline and prints the speed, to find the block
// size and depth for a disk and to compare with the disk's own speed:
//
//   io_bench --directory=D --gigabytes=2 --lanes=2 --direct=on --mode=copy
//
// Modes: read (a file, into nothing), write (a file, from nothing), copy. The
// files are made before and removed after; each mode's clock stops when the
// target is synced.
#include <fcntl.h>
#include <stdio.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/io/file_system.h"
#include "dcp/io/lane.h"
#include "dcp/io/pipeline.h"

ABSL_FLAG(std::string, directory, ".", "where the files are made");
ABSL_FLAG(double, gigabytes, 2, "size of the file, in 1e9 bytes");
ABSL_FLAG(uint32_t, lanes, 2, "threads, each with a part of the file");
ABSL_FLAG(uint64_t, memory_mib, 256, "budget of all lanes");
ABSL_FLAG(uint64_t, blocks_per_batch, 1, "blocks that are filled together");
ABSL_FLAG(uint64_t, read_kib, 0, "longest read; 0: as long as possible");
ABSL_FLAG(bool, direct, true, "O_DIRECT, or through the page cache");
ABSL_FLAG(bool, uring, true, "io_uring, or blocking calls");
ABSL_FLAG(std::string, mode, "copy", "read, write or copy");
ABSL_FLAG(uint32_t, repeat, 3, "how many times");

namespace dcp {
namespace {

struct Job {
  File src;
  File dst;
  bool reads = true;
  bool writes = true;
  uint64_t blocks_per_batch = 1;
  uint64_t read_bytes = kMaxReadBytes;
};

// The part that one lane moves.
struct Part {
  uint64_t at = 0;
  uint64_t end = 0;
};

void PlanReads(const Job& job, uint64_t begin, uint64_t end, Batch& batch) {
  while (begin < end) {
    const uint64_t length = std::min(job.read_bytes, end - begin);
    batch.reads.push_back({.file = job.src, .offset = begin, .length = length});
    begin += length;
  }
}

bool Next(const Job& job, Part& part, Batch& batch) {
  if (part.at >= part.end) return false;
  const uint64_t begin = part.at;
  const size_t num_blocks = std::max<size_t>(batch.blocks.size(), 1);
  for (uint32_t i = 0; i < num_blocks && part.at < part.end; ++i) {
    const uint64_t length = std::min(kBlockBytes, part.end - part.at);
    if (job.reads) PlanReads(job, part.at, part.at + length, batch);
    if (job.writes) {
      batch.writes.push_back(
          {.file = job.dst, .offset = part.at, .length = length, .block = i});
    }
    part.at += length;
  }
  batch.on_read = [&job, &batch, begin](size_t index, ByteSpan data) {
    if (!job.writes) return absl::OkStatus();
    const PlannedRead& read = batch.reads[index];
    const uint64_t inside = read.offset - begin;
    std::copy_n(
        data.begin(), read.length,
        batch.blocks[inside / kBlockBytes].data() + inside % kBlockBytes);
    return absl::OkStatus();
  };
  return true;
}

absl::Status Move(FileSystem& fs, const Job& job, uint64_t size) {
  const uint32_t num_lanes = absl::GetFlag(FLAGS_lanes);
  const uint64_t share = AlignUp(size / num_lanes + 1, kBlockBytes);
  const auto work = [&](Lane& lane, std::stop_token stop) {
    Part part{.at = lane.index * share,
              .end = std::min((lane.index + 1) * share, size)};
    TransferStats stats;
    return RunPipeline(
        *lane.queue, lane.pool, job.writes ? job.blocks_per_batch : 0,
        [&](Batch& batch) -> absl::StatusOr<bool> {
          return Next(job, part, batch);
        },
        [](FileHandle handle) { return absl::StrCat("file ", handle); }, stop,
        stats);
  };
  return RunLanes(fs, num_lanes, absl::GetFlag(FLAGS_memory_mib) << 20, {},
                  work);
}

absl::Status RunOnce(FileSystem& fs, const std::string& src,
                     const std::string& dst, uint64_t size) {
  const DirectMode direct =
      absl::GetFlag(FLAGS_direct) ? DirectMode::kOn : DirectMode::kOff;
  const std::string mode = absl::GetFlag(FLAGS_mode);
  const uint64_t read_kib = absl::GetFlag(FLAGS_read_kib);
  Job job{.src = {},
          .dst = {},
          .reads = mode != "write",
          .writes = mode != "read",
          .blocks_per_batch = absl::GetFlag(FLAGS_blocks_per_batch),
          .read_bytes = read_kib == 0 ? kMaxReadBytes : read_kib << 10};
  if (job.reads) {
    DCP_ASSIGN_OR_RETURN(job.src, fs.OpenForRead(src, direct, true));
    posix_fadvise(job.src.handle, 0, 0, POSIX_FADV_DONTNEED);
  }
  const auto start = std::chrono::steady_clock::now();
  if (job.writes) {
    DCP_ASSIGN_OR_RETURN(job.dst, fs.Create(dst, size, direct));
  }
  DCP_RETURN_IF_ERROR(Move(fs, job, size));
  if (job.writes) {
    DCP_RETURN_IF_ERROR(fs.Sync(job.dst));
  }
  const std::chrono::duration<double> seconds =
      std::chrono::steady_clock::now() - start;
  absl::PrintF("%s %.3f GB/s\n", mode,
               static_cast<double>(size) / 1e9 / seconds.count());
  if (job.reads) DCP_RETURN_IF_ERROR(fs.Close(job.src));
  if (job.writes) {
    DCP_RETURN_IF_ERROR(fs.Close(job.dst));
    DCP_RETURN_IF_ERROR(fs.Remove(dst));
  }
  return absl::OkStatus();
}

// A file with real blocks, because a hole would be read without the disk.
absl::Status MakeSource(FileSystem& fs, const std::string& path,
                        uint64_t size) {
  DCP_ASSIGN_OR_RETURN(const File file,
                       fs.Create(path, size, DirectMode::kOff));
  std::vector<uint8_t> bytes(kBlockBytes);
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<uint8_t>(i * i >> 7);
  }
  for (uint64_t at = 0; at < size; at += bytes.size()) {
    DCP_RETURN_IF_ERROR(fs.Write(
        file, at,
        ByteSpan(bytes).first(std::min<uint64_t>(bytes.size(), size - at))));
  }
  DCP_RETURN_IF_ERROR(fs.Sync(file));
  return fs.Close(file);
}

absl::Status RunAll() {
  const auto fs = NewPosixFileSystem(
      absl::GetFlag(FLAGS_uring) ? QueueKind::kUring : QueueKind::kBlocking);
  const std::string src =
      JoinPath(absl::GetFlag(FLAGS_directory), "io_bench.src");
  const std::string dst =
      JoinPath(absl::GetFlag(FLAGS_directory), "io_bench.dst");
  const uint64_t size =
      AlignDown(static_cast<uint64_t>(absl::GetFlag(FLAGS_gigabytes) * 1e9),
                kMaxDirectAlignment);
  absl::Status status = MakeSource(*fs, src, size);
  for (uint32_t i = 0; i < absl::GetFlag(FLAGS_repeat) && status.ok(); ++i) {
    status = RunOnce(*fs, src, dst, size);
  }
  fs->Remove(dst).IgnoreError();  // the file exists only after an error
  status.Update(fs->Remove(src));
  return status;
}

}  // namespace
}  // namespace dcp

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = dcp::RunAll();
  if (status.ok()) return 0;
  fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
