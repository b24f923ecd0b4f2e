// SPDX-License-Identifier: Apache-2.0
// DaemonSource: a checkpoint, in any format, that a dcp-server reads and sends
// to this process on request, also through a mapping. As CheckpointSource. If
// the checkpoint changes after it was opened, reads fail (FailedPrecondition).
#ifndef FSDP_CHECKPOINT_SOURCE_DAEMON_SOURCE_H_
#define FSDP_CHECKPOINT_SOURCE_DAEMON_SOURCE_H_

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
#include "client/checkpoint_client.h"
#include "client/client_options.h"
#include "dcp/checkpoint/files/map_spec.h"
#include "dcp/format/value/value.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/dtype.h"
#include "fsdp/checkpoint/source/checkpoint_source.h"

namespace fsdp {

class DaemonSource final : public CheckpointSource {
 public:
  // `url` is as in client/checkpoint_url.h; `options.address` is used if the
  // URL has no address. `map` is the mapping through which the daemon reads the
  // checkpoint; without a config.json in it, the daemon looks for one.
  // Unavailable if the daemon does not answer; FailedPrecondition if the rules
  // do not fit the checkpoint, or if tensors that they take for equal differ.
  static absl::StatusOr<std::unique_ptr<DaemonSource>> Open(
      const std::string& url, dcp::client::ClientOptions options,
      const std::optional<dcp::MapSpec>& map, std::stop_token stop);

  const std::string& path() const override { return url_; }
  std::optional<StoredEntry> Find(absl::string_view name) const override;
  std::string NamesMade() const override { return names_made_; }
  absl::StatusOr<absl::flat_hash_map<std::string, dcp::Value>> ReadObjects(
      const absl::flat_hash_set<std::string>& names,
      std::stop_token stop) override;
  // The daemon has compared them when it opened the checkpoint.
  absl::Status CheckTies(const dcp::TieParts&, const ReadOptions&) override {
    return absl::OkStatus();
  }
  absl::Status ReadTensors(absl::Span<const dcp::LoadTensor> tensors,
                           const ReadOptions& options) override;

 private:
  struct Entry {
    bool is_tensor;
    dcp::DType dtype;
    dcp::Dims shape;
    std::string made_of = {};
  };

  DaemonSource(std::string url,
               std::shared_ptr<const dcp::client::Channel> channel)
      : url_(std::move(url)), client_(std::move(channel)) {}
  absl::Status Inspect(const std::string& path,
                       const std::optional<dcp::MapSpec>& map,
                       std::stop_token stop);

  const std::string url_;
  dcp::client::CheckpointClient client_;
  tessera::v1::Source source_;
  std::string etag_;
  std::string names_made_;  // see NamesMade
  absl::flat_hash_map<std::string, Entry> entries_;
  dcp::ValueArena arena_;  // the objects' values
};

}  // namespace fsdp

#endif  // FSDP_CHECKPOINT_SOURCE_DAEMON_SOURCE_H_
