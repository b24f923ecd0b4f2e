// SPDX-License-Identifier: Apache-2.0
// The code in client/README.md.

#include <cstdlib>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "client/checkpoint_client.h"
#include "client/job_client.h"
#include "gtest/gtest.h"
#include "tests/client/fake_server.h"
#include "tests/testing/status_matchers.h"

namespace dcp::client {
namespace {

// [connect]
absl::StatusOr<std::shared_ptr<Channel>> Connect(const std::string& address) {
  ClientOptions options;
  options.address = address;  // "host:7420", "unix:/run/dcp-server.sock"
  if (getenv("TESSERA_CA") != nullptr) options.ca_file = getenv("TESSERA_CA");
  return Channel::Open(options);
}
// [/connect]

// [reshard]
absl::Status ReshardTo(const std::shared_ptr<Channel>& channel,
                       const std::string& source, const std::string& target) {
  tessera::v1::ReshardRequest request;
  request.mutable_source()->set_path(source);
  request.mutable_destination()->set_path(target);
  tessera::v1::Mesh::Axis* const axis = request.mutable_mesh()->add_axes();
  axis->set_name("shard");
  axis->set_size(8);
  JobClient jobs(channel);
  absl::StatusOr<Job> job = jobs.Reshard(request);
  if (!job.ok()) return job.status();
  job = jobs.Watch(job->name, [](const Job& now) {
    std::cerr << now.metadata.bytes_done() << " of "
              << now.metadata.bytes_total() << " bytes\n";
  });
  return job.ok() ? job->status : job.status();
}
// [/reshard]

// [read]
absl::Status ReadRows(const std::shared_ptr<Channel>& channel,
                      const std::string& path, std::span<uint8_t> memory) {
  tessera::v1::Source source;
  source.set_path(path);
  WantedPart wanted;
  wanted.part.set_name("model.weight");
  wanted.part.mutable_box()->add_offsets(2);  // rows 2 and 3
  wanted.part.mutable_box()->add_offsets(0);
  wanted.part.mutable_box()->add_sizes(2);
  wanted.part.mutable_box()->add_sizes(4);
  wanted.memory = memory;  // exactly the part's bytes
  return CheckpointClient(channel)
      .ReadTensors(source, {&wanted, 1}, {.num_streams = 4})
      .status();
}
// [/read]

TEST(Readme, CodeRuns) {
  FakeServer server;
  ASSERT_OK_AND_ASSIGN(const std::shared_ptr<Channel> channel,
                       Connect(server.address()));
  EXPECT_OK(ReshardTo(channel, "/data/a", "/data/b"));
  server.checkpoints.part_bytes = {32};
  server.checkpoints.part_name = "model.weight";
  std::vector<uint8_t> memory(32);
  EXPECT_OK(ReadRows(channel, "/data/a", memory));
  EXPECT_EQ(memory[31], FakeByte(31));
}

}  // namespace
}  // namespace dcp::client
