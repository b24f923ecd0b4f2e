// SPDX-License-Identifier: Apache-2.0
// The programs that tools/bench serve runs in addition to dcp-server: ranks
// that read from it, and, for comparison, a stream with the same bytes from
// memory in messages of the same size, by gRPC alone.
//
//   serve_bench raw FILE
//       serves the bytes of FILE, which it keeps in memory, prints
//       "127.0.0.1:PORT", and ends when standard input does
//   serve_bench read raw ADDRESS BYTES RANKS AXIS
//   serve_bench read stream ADDRESS PATH RANKS AXIS
//   serve_bench read library ADDRESS PATH RANKS AXIS
//       reads with RANKS threads, each on a separate connection. AXIS is
//       "shard" (each thread reads a part) or "replicate" (each reads
//       everything). `stream` looks at the bytes no more than `raw` does;
//       `library` is //client: it checks them and puts them where they belong,
//       in memory that was used before. Prints seconds and bytes as JSON.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/channel.h"
#include "client/checkpoint_client.h"
#include "dcp/base/status.h"
#include "grpcpp/grpcpp.h"
#include "proto/rpc_status.h"
#include "tessera/v1/checkpoint_service.grpc.pb.h"

namespace dcp {
namespace {

namespace v1 = ::tessera::v1;

// A message's size, dcp-server's default.
constexpr uint64_t kMessageBytes = uint64_t{1} << 20;

// A file in memory, until the process ends.
absl::StatusOr<std::span<uint8_t>> MapFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat info = {};
  if (fd < 0 || fstat(fd, &info) != 0) {
    return absl::NotFoundError(absl::StrCat("cannot open ", path));
  }
  const auto size = static_cast<size_t>(info.st_size);
  void* const memory =
      mmap(nullptr, size, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
  close(fd);
  if (memory == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot map ", path));
  }
  return std::span<uint8_t>(static_cast<uint8_t*>(memory), size);
}

// Bytes in memory as one-field messages, without a copy.
class RawStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  explicit RawStream(std::span<uint8_t> bytes) : left_(bytes) { WriteNext(); }

 private:
  void WriteNext() {
    if (left_.empty()) return Finish(grpc::Status::OK);
    const std::span<uint8_t> now =
        left_.first(std::min<size_t>(left_.size(), kMessageBytes));
    left_ = left_.subspan(now.size());
    // GetMetadataResponse.data and the length.
    std::string head = "\x0a";
    size_t length = now.size();
    for (; length >= 0x80; length >>= 7) {
      head += static_cast<char>(0x80 | (length & 0x7f));
    }
    head += static_cast<char>(length);
    const grpc::Slice slices[] = {
        grpc::Slice(head),
        grpc::Slice(now.data(), now.size(), grpc::Slice::STATIC_SLICE)};
    buffer_ = grpc::ByteBuffer(slices, 2);
    StartWrite(&buffer_);
  }
  void OnWriteDone(bool ok) override {
    if (ok) return WriteNext();
    Finish(grpc::Status::CANCELLED);
  }
  void OnDone() override { delete this; }

  std::span<uint8_t> left_;
  grpc::ByteBuffer buffer_;
};

// The request's path is "BEGIN LENGTH", in the bytes.
class RawService final
    : public v1::CheckpointService::WithRawCallbackMethod_GetMetadata<
          v1::CheckpointService::Service> {
 public:
  explicit RawService(std::span<uint8_t> bytes) : bytes_(bytes) {}

  grpc::ServerWriteReactor<grpc::ByteBuffer>* GetMetadata(
      grpc::CallbackServerContext*, const grpc::ByteBuffer* buffer) override {
    grpc::ByteBuffer copy = *buffer;
    v1::GetMetadataRequest request;
    unsigned long begin = 0, length = 0;
    if (!grpc::SerializationTraits<v1::GetMetadataRequest>::Deserialize(
             &copy, &request)
             .ok() ||
        sscanf(request.source().path().c_str(), "%lu %lu", &begin, &length) !=
            2 ||
        begin > bytes_.size() || length > bytes_.size() - begin) {
      return new RawStream({});
    }
    return new RawStream(bytes_.subspan(begin, length));
  }

 private:
  const std::span<uint8_t> bytes_;
};

absl::Status ServeRaw(const std::string& path) {
  DCP_ASSIGN_OR_RETURN(const std::span<uint8_t> bytes, MapFile(path));
  RawService service(bytes);
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                           &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return absl::UnavailableError("cannot listen");
  std::cout << "127.0.0.1:" << port << std::endl;
  std::string line;
  while (std::getline(std::cin, line)) {
  }
  server->Shutdown();
  return absl::OkStatus();
}

struct Wish {
  std::string way;  // "raw", "stream" or "library"
  std::string address;
  std::string what;  // a path, or for "raw" a byte count
  uint64_t num_ranks = 0;
  std::string axis;  // "shard" or "replicate"
};

v1::ReadTensorsRequest MakeRequest(const Wish& wish, uint64_t rank) {
  v1::ReadTensorsRequest request;
  request.mutable_source()->set_path(wish.what);
  v1::ReadTensorsRequest::RankParts& parts = *request.mutable_rank_parts();
  v1::Mesh::Axis* const axis = parts.mutable_mesh()->add_axes();
  axis->set_name(wish.axis);
  axis->set_size(static_cast<int64_t>(wish.num_ranks));
  parts.add_coordinate(static_cast<int64_t>(rank));
  return request;
}

std::unique_ptr<v1::CheckpointService::Stub> NewStub(const Wish& wish) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(static_cast<int>(8 * kMessageBytes));
  // A separate connection.
  arguments.SetInt("grpc.use_local_subchannel_pool", 1);
  return v1::CheckpointService::NewStub(grpc::CreateCustomChannel(
      wish.address, grpc::InsecureChannelCredentials(), arguments));
}

absl::StatusOr<uint64_t> ReadRaw(const Wish& wish, uint64_t rank) {
  uint64_t length = 0;
  if (!absl::SimpleAtoi(wish.what, &length)) {
    return absl::InvalidArgumentError(wish.what);
  }
  if (wish.axis == "shard") length /= wish.num_ranks;
  const uint64_t begin = wish.axis == "shard" ? rank * length : 0;
  v1::GetMetadataRequest request;
  request.mutable_source()->set_path(absl::StrCat(begin, " ", length));
  const auto stub = NewStub(wish);
  grpc::ClientContext context;
  const auto reader = stub->GetMetadata(&context, request);
  v1::GetMetadataResponse message;
  uint64_t num_bytes = 0;
  while (reader->Read(&message)) num_bytes += message.data().size();
  DCP_RETURN_IF_ERROR(FromRpcStatus(reader->Finish(), "raw"));
  return num_bytes;
}

absl::StatusOr<uint64_t> ReadStream(const Wish& wish, uint64_t rank) {
  const auto stub = NewStub(wish);
  grpc::ClientContext context;
  const auto reader = stub->ReadTensors(&context, MakeRequest(wish, rank));
  v1::ReadTensorsResponse message;
  uint64_t num_bytes = 0;
  while (reader->Read(&message)) num_bytes += message.chunk().data().size();
  DCP_RETURN_IF_ERROR(FromRpcStatus(reader->Finish(), "ReadTensors"));
  return num_bytes;
}

// The memory for a rank's tensors, by part; there already when a job loads.
using RankMemory = std::vector<std::vector<uint8_t>>;

absl::StatusOr<uint64_t> ReadLibrary(const Wish& wish, uint64_t rank,
                                     RankMemory& memory) {
  DCP_ASSIGN_OR_RETURN(const std::shared_ptr<client::Channel> channel,
                       client::Channel::Open({.address = wish.address}));
  DCP_ASSIGN_OR_RETURN(
      const client::ReadTensorsStats stats,
      client::CheckpointClient(channel).ReadTensors(
          MakeRequest(wish, rank),
          [&](size_t index, const v1::ReadTensorsResponse::Header::Part& part)
              -> absl::StatusOr<std::span<uint8_t>> {
            if (index == memory.size()) memory.emplace_back(part.num_bytes());
            return memory[index];
          },
          {.num_streams = 1}));
  return stats.num_bytes;
}

absl::StatusOr<uint64_t> ReadRank(const Wish& wish, uint64_t rank,
                                  RankMemory& memory) {
  if (wish.way == "raw") return ReadRaw(wish, rank);
  if (wish.way == "stream") return ReadStream(wish, rank);
  if (wish.way == "library") return ReadLibrary(wish, rank, memory);
  return absl::InvalidArgumentError(absl::StrCat("no way ", wish.way));
}

absl::Status ReadAll(const Wish& wish, std::vector<RankMemory>& memory,
                     double& seconds, uint64_t& num_bytes) {
  std::mutex mutex;
  absl::Status status;
  num_bytes = 0;
  const auto begin = std::chrono::steady_clock::now();
  {
    std::vector<std::jthread> ranks;
    for (uint64_t rank = 0; rank < wish.num_ranks; ++rank) {
      ranks.emplace_back([&, rank] {
        const absl::StatusOr<uint64_t> done =
            ReadRank(wish, rank, memory[rank]);
        const std::lock_guard lock(mutex);
        status.Update(done.status());
        if (done.ok()) num_bytes += *done;
      });
    }
  }
  seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
          .count();
  return status;
}

absl::Status Read(const Wish& wish) {
  std::vector<RankMemory> memory(wish.num_ranks);
  double seconds = 0;
  uint64_t num_bytes = 0;
  DCP_RETURN_IF_ERROR(ReadAll(wish, memory, seconds, num_bytes));
  if (wish.way == "library") {
    // The first time allocated the memory.
    DCP_RETURN_IF_ERROR(ReadAll(wish, memory, seconds, num_bytes));
  }
  std::cout << absl::StrFormat("{\"seconds\": %.6f, \"bytes\": %d}\n", seconds,
                               num_bytes);
  return absl::OkStatus();
}

absl::Status Main(const std::vector<std::string>& words) {
  if (words.size() == 2 && words[0] == "raw") return ServeRaw(words[1]);
  Wish wish;
  if (words.size() != 6 || words[0] != "read" ||
      !absl::SimpleAtoi(words[4], &wish.num_ranks) || wish.num_ranks == 0) {
    return absl::InvalidArgumentError("usage: see serve_bench.cc");
  }
  wish.way = words[1];
  wish.address = words[2];
  wish.what = words[3];
  wish.axis = words[5];
  return Read(wish);
}

}  // namespace
}  // namespace dcp

int main(int argc, char** argv) {
  const absl::Status status =
      dcp::Main(std::vector<std::string>(argv + 1, argv + argc));
  if (status.ok()) return 0;
  std::cerr << "serve_bench: " << status << std::endl;
  return 1;
}
