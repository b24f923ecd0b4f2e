// SPDX-License-Identifier: Apache-2.0
// Lists the tensors in a checkpoint on a dcp-server:
//
//   list_remote HOST:PORT PATH

#include <iostream>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_join.h"
#include "tessera/client.h"

namespace {

absl::Status List(const char* address, const char* path) {
  dcp::client::ClientOptions options;
  options.address = address;
  DCP_ASSIGN_OR_RETURN(const std::shared_ptr<dcp::client::Channel> channel,
                       dcp::client::Channel::Open(options));
  tessera::v1::InspectRequest request;
  request.mutable_source()->set_path(path);
  DCP_ASSIGN_OR_RETURN(const tessera::v1::InspectResponse found,
                       dcp::client::CheckpointClient(channel).Inspect(request));
  for (const tessera::v1::Tensor& tensor : found.tensors()) {
    std::cout << tensor.name() << " [" << absl::StrJoin(tensor.shape(), ", ")
              << "]\n";
  }
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "Usage: list_remote HOST:PORT PATH\n";
    return 2;
  }
  const absl::Status listed = List(argv[1], argv[2]);
  if (!listed.ok()) {
    std::cerr << listed << "\n";
    return 1;
  }
}
