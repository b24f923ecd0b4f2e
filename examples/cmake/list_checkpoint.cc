// SPDX-License-Identifier: Apache-2.0
// Lists the tensors in a checkpoint in any format, loads each, and prints the
// CRC-32 of the bytes:
//
//   list_checkpoint PATH
//
// PATH may be a DCP directory, a .pt or a safetensors file, or s3://bucket/key.

#include <cstdint>
#include <iostream>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tessera/dcp.h"

namespace {

// Owns memory that receives a tensor.
class Memory final : public dcp::TensorSink {
 public:
  explicit Memory(uint64_t num_bytes) : bytes_(num_bytes) {}

  // A load writes here and calls neither of the other two.
  dcp::MutableByteSpan DirectSpan() override { return {bytes_}; }
  absl::Status Place(uint64_t, dcp::ByteSpan) override {
    return absl::OkStatus();
  }
  absl::Status Flush() override { return absl::OkStatus(); }

  const std::vector<uint8_t>& bytes() const { return bytes_; }

 private:
  std::vector<uint8_t> bytes_;
};

absl::Status List(const char* path) {
  const std::unique_ptr<dcp::FileSystem> fs = dcp::NewDefaultFileSystem();
  DCP_ASSIGN_OR_RETURN(const std::unique_ptr<dcp::Checkpoint> checkpoint,
                       dcp::Checkpoint::Open(*fs, path, {}));
  for (const dcp::CheckpointEntry& entry : checkpoint->entries()) {
    const dcp::TensorEntry* const tensor = entry.tensor();
    if (tensor == nullptr) continue;  // a Python object
    Memory memory(tensor->num_bytes());
    const dcp::LoadTensor wanted{.fqn = entry.fqn,
                                 .dtype = tensor->dtype,
                                 .shape = tensor->shape,
                                 .box = dcp::WholeBox(tensor->shape),
                                 .sink = &memory};
    DCP_RETURN_IF_ERROR(
        dcp::Load(*fs, *checkpoint, {wanted}, {.verify = true}));
    std::cout << entry.fqn << " " << dcp::TorchName(tensor->dtype) << " ["
              << absl::StrJoin(tensor->shape, ", ") << "] "
              << absl::StrCat(absl::Hex(dcp::ExtendCrc32(0, memory.bytes()),
                                        absl::kZeroPad8))
              << "\n";
  }
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "Usage: list_checkpoint PATH\nTessera " << dcp::kVersion
              << "\n";
    return 2;
  }
  const absl::Status listed = List(argv[1]);
  if (!listed.ok()) {
    std::cerr << listed << "\n";
    return 1;
  }
}
