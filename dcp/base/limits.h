// SPDX-License-Identifier: Apache-2.0
// All limits, each with the reason. If one limit depends on another, a
// static_assert checks it.
#ifndef DCP_BASE_LIMITS_H_
#define DCP_BASE_LIMITS_H_

#include <cstddef>
#include <cstdint>

namespace dcp {

// O_DIRECT requires that offset, length and memory are aligned as the file
// system says (dcp/io/direct_alignment.h). Less than this is useless, even if
// it is allowed: the disk, or the file system, would rewrite a whole block.
inline constexpr uint64_t kDirectAlignment = 4096;

// No disk on Linux has larger blocks, and no kernel that we know larger pages.
inline constexpr uint64_t kMaxDirectAlignment = 65536;

// One piece of payload memory. Large enough that a disk reaches its full speed
// with a handful in flight, small enough that a budget of 64 MiB holds the
// pipeline. Copies of 1 GB by two lanes (io_bench, ext4 on a virtual disk that
// reads 0.8 and writes 1.6 GB/s by fio; medians of 6, with other work on the
// machine) reached 0.52 GB/s with 1 MiB, 0.58 with 2, 0.74 with 4, 0.59 with 8.
inline constexpr uint64_t kBlockBytes = uint64_t{4} << 20;
static_assert(kBlockBytes % kMaxDirectAlignment == 0);

// Blocks for transfers to and from object stores: a request takes so long that
// 4 MiB parts would make it the bottleneck (and S3 refuses parts below 5 MiB).
// Larger files have larger parts, up to the second.
inline constexpr uint64_t kObjectBlockBytes = uint64_t{8} << 20;
inline constexpr uint64_t kMaxBlockBytes = uint64_t{64} << 20;

// The fewest blocks with which the pipeline progresses: two to read into, two
// to write from.
inline constexpr uint64_t kMinBlocks = 4;
inline constexpr uint64_t kMinMemoryBytes = kMinBlocks * kBlockBytes;

// A transfer's payload memory, unless the caller sets it: as much as two lanes
// with full queues use.
inline constexpr uint64_t kDefaultMemoryBytes = uint64_t{256} << 20;
static_assert(kDefaultMemoryBytes >= kMinMemoryBytes);

// A lane keeps at most this many reads and as many writes in flight. More
// memory than they fill made copies slower, because it is locked before it is
// used: 0.54 GB/s with twice as much (median of 11, measured as above),
// compared with 0.69 with just as much (median of 9).
inline constexpr uint32_t kQueueDepth = 16;

// Smaller files do not benefit from direct I/O: the page cache serves them and
// keeps them for the next reader.
inline constexpr uint64_t kMinDirectFileBytes = uint64_t{1} << 20;

// A transfer that is interrupted, must be retried, or moves no bytes this many
// times in a row has failed.
inline constexpr uint32_t kMaxIoTries = 1000;

// Payload inside an item that we write starts at a multiple of this many bytes
// from the file's start, as torch.save aligns storages.
inline constexpr uint64_t kStorageAlignment = 64;

// Two needed ranges in one file are read as one if the gap between them is at
// most this: reading the gap costs less than another request.
inline constexpr uint64_t kReadGapBytes = 64 << 10;

// Every read covers this many bytes past the end, so that an element that
// begins in one read and ends in the next is whole in the first. The largest
// element has 16 bytes.
inline constexpr uint64_t kReadMarginBytes = 16;

// A tensor's dimensions. PyTorch allows at most 64.
inline constexpr uint64_t kMaxDims = 64;

// The size of a text that is held in memory while it is parsed: .metadata, a
// state dict's data.pkl, an index or a header. A checkpoint with a million
// chunks needs some 300 MiB.
inline constexpr uint64_t kMaxMetadataBytes = uint64_t{1} << 30;

// A TorchSnapshot's manifest, which is read as a stream: those for large
// recommendation models have 2 GB.
inline constexpr uint64_t kMaxManifestBytes = uint64_t{4} << 30;

// The reference implementation of safetensors refuses longer headers.
inline constexpr uint64_t kMaxSafetensorsHeaderBytes = 100'000'000;

// Nesting of values in a pickle. Training state is not nested more deeply.
inline constexpr uint32_t kMaxPickleDepth = 1000;

// Values that one pickle may build, so that a small file cannot fill the
// memory. If parts are shared, and therefore count several times, the limit is
// kMaxPickleValuesPerByte per byte, but at least kMinPickleValues, which is
// enough for a list of lists.
inline constexpr uint64_t kMaxPickleValues = uint64_t{1} << 28;
inline constexpr uint64_t kMaxPickleValuesPerByte = 16;
inline constexpr uint64_t kMinPickleValues = uint64_t{1} << 20;

// Slots that may be skipped in a pickle's memo: Python 2 counts from 1.
inline constexpr uint64_t kMaxPickleMemoGap = 64;

// An integer's bytes in a pickle: far more than a state dict needs, small
// enough that decimal conversion stays fast.
inline constexpr uint64_t kMaxPickleIntBytes = 4096;

// Nesting in a JSON text: a safetensors header needs 3, an index 2.
inline constexpr uint32_t kMaxJsonDepth = 32;

// Records in one zip archive: one per storage in a state dict.
inline constexpr uint64_t kMaxZipRecords = uint64_t{1} << 22;

// The end-of-central-directory record with the longest possible comment.
inline constexpr uint64_t kMaxZipTailBytes = 22 + 65535;

// The memory that a chunk takes in addition to its payload: first while the
// index that names it is read (including the index's bytes), then with the
// location and checksum until it is converted, and finally for the chunk's part
// of the output. The first was measured with 1.28 million chunks of 20,000
// tensors (see tests/bench), in an index of ours and one from PyTorch. The
// other two are the sizes of the structures that hold them.
inline constexpr uint64_t kIndexBytesPerChunkRead = 480;
inline constexpr uint64_t kIndexBytesPerChunk = 448;
inline constexpr uint64_t kOutputBytesPerChunk = 512;

// The part that is not counted against the memory budget.
inline constexpr uint64_t kFreeIndexBytes = uint64_t{32} << 20;

// Ranges that were read from a source but do not adjoin yet, while their
// checksums are compared: 16 bytes each. Reads leave gaps of more than
// kReadGapBytes, so this is enough for 64 GiB in items that are open at once.
inline constexpr uint64_t kMaxSeenStretches = uint64_t{1} << 20;

// The approximate size of the pieces that workers share. A worker that dies
// loses at most one piece of work, which a disk at 1 GB/s writes in a second;
// and 64 workers that share 10 TB differ by less than a hundredth.
inline constexpr uint64_t kPieceBytes = uint64_t{1} << 30;

// Output files that one lane may have open at once.
inline constexpr uint64_t kMaxOpenOutputs = 64;

// Limits of object stores (Amazon S3's, which the others follow): a key's
// length, the parts in one upload, the size of each part but the last, and the
// keys that one request removes.
inline constexpr uint64_t kMaxObjectKeyBytes = 1024;
inline constexpr uint32_t kMaxObjectParts = 10'000;
inline constexpr uint64_t kMinObjectPartBytes = uint64_t{5} << 20;
inline constexpr size_t kMaxObjectsRemoved = 1000;
static_assert(kObjectBlockBytes >= kMinObjectPartBytes);

// One answer from an object store that is not an object's bytes: a page with
// 1000 keys at the greatest length, each percent-encoded, needs 4 MiB.
inline constexpr size_t kMaxObjectAnswerBytes = size_t{16} << 20;

// Workers who each read a part of a stretch with a checksum check it together
// in cells of this size. Each reads the last cell that it begins to the end,
// half a cell more on average, and records some 20 bytes for each: 20 MB for a
// TB.
inline constexpr uint64_t kCheckedCellBytes = uint64_t{1} << 20;

// Files in a store that are opened, or that have their first bytes read, at the
// same time: each waits for a round trip or a few, and a server answers
// thousands a second.
inline constexpr uint32_t kFilesAtOnce = 32;

// Files in one checkpoint directory: ranks times files per rank.
inline constexpr uint64_t kMaxFiles = uint64_t{1} << 20;

// Ranks in a mesh, and pieces in a strided shard: each writes at most one file.
inline constexpr int64_t kMaxRanks = int64_t{1} << 20;

// One tensor's boxes on one rank (uneven strided shards leave several), and the
// most intervals that may be examined to find them. Both are thousands of times
// a real mesh's need.
inline constexpr uint64_t kMaxBoxesPerRank = uint64_t{1} << 16;
inline constexpr uint64_t kMaxShardSteps = uint64_t{1} << 24;

// A model's layers that one tensor may hold, and the numbers (box offsets and
// parts of names, 8 bytes each) that all tensors in a checkpoint may be cut
// into: enough for 4 million boxes with 4 dimensions.
inline constexpr int64_t kMaxStackedLayers = int64_t{1} << 14;
inline constexpr uint64_t kMaxCutNumbers = uint64_t{1} << 24;

// The length of a tensor's or file's name.
inline constexpr uint64_t kMaxNameBytes = 64 << 10;

// The names that an error lists before it says that there are more.
inline constexpr size_t kMaxNamesShown = 5;

// A list index in a planner path may not exceed the larger of this and 16 times
// the number of entries, so that one index cannot extend a list without limit.
inline constexpr uint64_t kMaxListIndex = 65536;

}  // namespace dcp

#endif  // DCP_BASE_LIMITS_H_
