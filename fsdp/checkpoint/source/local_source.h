// SPDX-License-Identifier: Apache-2.0
// LocalSource: a checkpoint in any format, in files that this process reads
// itself. As CheckpointSource.
#ifndef FSDP_CHECKPOINT_SOURCE_LOCAL_SOURCE_H_
#define FSDP_CHECKPOINT_SOURCE_LOCAL_SOURCE_H_

#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "dcp/checkpoint/mapped/map_request.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/io/file_system.h"
#include "fsdp/checkpoint/source/checkpoint_source.h"

namespace fsdp {

class LocalSource final : public CheckpointSource {
 public:
  // `file_system` outlives the source; null: the operating system's. `verify`
  // and `map` are as in TorchLoadOptions.
  static absl::StatusOr<std::unique_ptr<LocalSource>> Open(
      dcp::FileSystem* file_system, const std::string& path,
      bool verify = false,
      const std::optional<dcp::MapRequest>& map = std::nullopt);

  const std::string& path() const override { return checkpoint_->path(); }
  std::string CachedAs() override;
  std::optional<StoredEntry> Find(absl::string_view name) const override;
  std::string NamesMade() const override { return checkpoint_->NamesMade(); }
  absl::StatusOr<absl::flat_hash_map<std::string, dcp::Value>> ReadObjects(
      const absl::flat_hash_set<std::string>& names,
      std::stop_token stop) override;
  absl::Status CheckTies(const dcp::TieParts& parts,
                         const ReadOptions& options) override;
  absl::Status ReadTensors(absl::Span<const dcp::LoadTensor> tensors,
                           const ReadOptions& options) override;

 private:
  LocalSource(dcp::FileSystem& fs, std::unique_ptr<dcp::Checkpoint> checkpoint,
              bool verify)
      : fs_(fs), checkpoint_(std::move(checkpoint)), verify_(verify) {}

  dcp::FileSystem& fs_;
  const std::unique_ptr<dcp::Checkpoint> checkpoint_;
  const bool verify_;
};

}  // namespace fsdp

#endif  // FSDP_CHECKPOINT_SOURCE_LOCAL_SOURCE_H_
