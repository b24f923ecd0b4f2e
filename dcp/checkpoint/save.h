// Save: writes tensors and objects that ranks hold in memory as a DCP
// checkpoint. Every rank calls it with what it holds; what several hold is
// written by one of them. Blocking; called from any thread, by all ranks.
#ifndef DCP_CHECKPOINT_SAVE_H_
#define DCP_CHECKPOINT_SAVE_H_

#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/coordinator.h"
#include "dcp/checkpoint/tensor_source.h"
#include "dcp/format/value.h"
#include "dcp/io/file_system.h"
#include "dcp/io/pipeline.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/dtype.h"
#include "dcp/tensor/metadata.h"

namespace dcp {

// The part `box` of a tensor of global shape `shape`. A tensor of which a rank
// holds several parts is listed several times.
struct SaveTensor {
  std::string fqn;
  StatePath path;
  DType dtype = DType::kFloat32;
  Dims shape;
  Box box;
  TensorSource* source = nullptr;  // of the box, row-major; outlives the save
};

struct SaveObject {
  std::string fqn;
  StatePath path;
  Value value;  // without tensors
};

struct SaveState {
  std::vector<SaveTensor> tensors;
  std::vector<SaveObject> objects;
};

struct SaveOptions {
  bool overwrite = true;
  DirectMode direct = DirectMode::kAuto;
  uint64_t memory_bytes = uint64_t{256} << 20;
  std::stop_token stop = {};
  TransferStats* stats = nullptr;
};

// The checkpoint at `path` appears whole or not at all. An error of one rank
// is returned on all. InvalidArgument when ranks disagree on a tensor's type
// or shape, or their parts do not make the whole of it; else as
// ConvertCheckpoint's destination.
absl::Status Save(FileSystem& fs, absl::string_view path,
                  const SaveState& state, Coordinator& coordinator,
                  const SaveOptions& options);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_SAVE_H_
