// SPDX-License-Identifier: Apache-2.0
// Calls in progress when a client's rights change.

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tessera/v1/checkpoint_service.grpc.pb.h"
#include "tests/server/server_fixture.h"

namespace dcp::server {
namespace {

namespace v1 = tessera::v1;

// The digests of "one" and "two".
constexpr char kA[] =
    "a 7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed";
constexpr char kB[] =
    "b 3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3\n";

using ServerRevokeTest = ServerFixture;

// A stream; the client reads the first message and then waits.
struct Stream {
  Stream(const std::shared_ptr<grpc::Channel>& channel,
         const std::string& token, const std::string& path)
      : stub(v1::CheckpointService::NewStub(channel)) {
    v1::ReadTensorsRequest request;
    request.mutable_source()->set_path(path);
    request.mutable_parts()->add_parts()->set_name("t");
    context.AddMetadata("authorization", absl::StrCat("Bearer ", token));
    reader = stub->ReadTensors(&context, request);
    EXPECT_TRUE(reader->Read(&response));
  }

  grpc::StatusCode End() {
    while (reader->Read(&response)) {
    }
    return reader->Finish().error_code();
  }

  grpc::ClientContext context;
  std::unique_ptr<v1::CheckpointService::Stub> stub;
  std::unique_ptr<grpc::ClientReader<v1::ReadTensorsResponse>> reader;
  v1::ReadTensorsResponse response;
};

TEST_F(ServerRevokeTest, EndsOnlyCallsOfClientsWithChangedRights) {
  const std::string path =
      dir_.WriteFile("data/t.safetensors", SafetensorsImage(64 << 20));
  const std::string one = absl::StrCat(kA, " write=", dir_.Join("data"), "\n");
  for (const std::string& tokens :
       {std::string(kB),
        absl::StrCat(kA, " read=", dir_.Join("data/step-1"), "\n", kB)}) {
    server_ = nullptr;
    options_.tokens_file = dir_.WriteFile("tokens", one + kB);
    Start();
    Stream revoked(Plaintext(), "one", path);
    Stream other(Plaintext(), "two", path);
    server_->Reload();  // changes nothing
    dir_.WriteFile("tokens", tokens);
    server_->Reload();
    EXPECT_EQ(revoked.End(), grpc::StatusCode::UNAUTHENTICATED);
    EXPECT_EQ(other.End(), grpc::StatusCode::OK);
  }
}

}  // namespace
}  // namespace dcp::server
