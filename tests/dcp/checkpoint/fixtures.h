// SPDX-License-Identifier: Apache-2.0
// Small checkpoints in each format, built byte by byte so that a test can
// damage one part; also reads the tensors in an opened checkpoint. One thread;
// steps that cannot fail in a sound test use DCP_CHECK.
#ifndef TESTS_DCP_CHECKPOINT_FIXTURES_H_
#define TESTS_DCP_CHECKPOINT_FIXTURES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/format/value/value.h"
#include "dcp/io/file_system.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/dtype.h"
#include "dcp/tensor/metadata.h"
#include "tests/testing/temp_dir.h"

namespace dcp::testing {

// The operating system's file system, for all tests in a process.
FileSystem& Disk();

// The bytes in `values`, as a payload.
template <typename T>
std::string BytesOf(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()),
                     values.size() * sizeof(T));
}

// A torch.save archive with `root`; the storages "0", "1", ... hold `storages`;
// with correct CRCs, or without any storage.
std::string TorchArchiveBytes(const Value& root,
                              const std::vector<std::string>& storages,
                              bool with_crcs = true);

// One whole tensor as an archive: an item in a DCP checkpoint.
std::string TensorItem(DType dtype, const Dims& shape,
                       absl::string_view payload);
// One object without tensors.
std::string ObjectItem(const Value& value);

// A DCP directory under construction: data files and their index.
class DcpBuilder {
 public:
  // Adds a data file; the items follow each other without gaps.
  void StartFile(absl::string_view name);
  // Adds `item` as a chunk to tensor `fqn`, which has the shape `shape`.
  void AddChunk(absl::string_view fqn, DType dtype, const Dims& shape,
                const Box& box, absl::string_view item);
  // Adds a whole tensor with a valid item.
  void AddTensor(absl::string_view fqn, DType dtype, const Dims& shape,
                 absl::string_view payload);
  void AddObject(absl::string_view fqn, absl::string_view item);

  Metadata& metadata() { return metadata_; }
  // The data files' bytes, parallel to metadata().files.
  std::vector<std::string>& files() { return files_; }

  // Writes everything below `directory` in `dir`; returns the path.
  std::string Write(const TempDir& dir, absl::string_view directory,
                    absl::string_view metadata_name = ".metadata") const;

 private:
  StorageInfo Append(absl::string_view item);

  Metadata metadata_;
  std::vector<std::string> files_;
};

struct SmallTensor {
  std::string name;
  DType dtype = DType::kFloat32;
  Dims shape;
  std::string payload;
};

// A safetensors file with `tensors`, in the given order.
std::string SafetensorsBytes(
    const std::vector<SmallTensor>& tensors,
    const std::vector<std::pair<std::string, std::string>>& metadata = {});

// Opens with the default options.
absl::StatusOr<std::unique_ptr<Checkpoint>> OpenCheckpoint(
    absl::string_view path);

// The entry with this name, which must exist.
const CheckpointEntry& GetEntry(const Checkpoint& checkpoint,
                                absl::string_view fqn);

// Every tensor's row-major bytes, through Load.
absl::StatusOr<std::map<std::string, std::string>> LoadAll(
    Checkpoint& checkpoint);

}  // namespace dcp::testing

#endif  // TESTS_DCP_CHECKPOINT_FIXTURES_H_
