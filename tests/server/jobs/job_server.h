// SPDX-License-Identifier: Apache-2.0
// JobClient: calls a server of jobs. JobServer: jobs behind a real gRPC server
// on a loopback socket, assembled as in the daemon, and a client of it. Sources
// and destinations are in "data" of the given directory, the journal in
// "state". One thread; what cannot fail in a sound test is a DCP_CHECK.
#ifndef TESTS_SERVER_JOBS_JOB_SERVER_H_
#define TESTS_SERVER_JOBS_JOB_SERVER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "google/longrunning/operations_proto.grpc.pb.h"
#include "grpcpp/client_context.h"
#include "grpcpp/server.h"
#include "server/access/access.h"
#include "server/access/admission.h"
#include "server/jobs/job_journal.h"
#include "server/jobs/job_manager.h"
#include "server/jobs/job_runner.h"
#include "server/jobs/job_service.h"
#include "server/jobs/operations_service.h"
#include "server/memory/memory_budget.h"
#include "server/options/server_options.h"
#include "server/process/metrics.h"
#include "tessera/v1/job_service.grpc.pb.h"
#include "tests/server/hooked_file_system.h"

namespace dcp::server {

using google::longrunning::Operation;

// A checkpoint of random tensors determined by `seed`, in `num_files` files
// that have about `num_bytes` in total.
void MakeCheckpoint(const std::string& path, int64_t num_files,
                    uint64_t num_bytes, uint64_t seed = 1);
// Checks that both hold the same and that `b` is sound.
absl::Status CompareCheckpoints(const std::string& a, const std::string& b);
// The names of all files below `path`, sorted, one a line.
std::string ListFiles(const std::string& path);

// Calls a server of jobs and waits for the answers.
class JobClient {
 public:
  // `directory` is the server's directory.
  explicit JobClient(const std::string& directory) : directory_(directory) {}
  void Connect(const std::string& address);

  std::string data(absl::string_view name) const;

  // Sent with every call, unless it is empty.
  void set_token(const std::string& token) { token_ = token; }
  void Prepare(grpc::ClientContext& context) const;
  tessera::v1::JobService::Stub& jobs() { return *jobs_; }
  google::longrunning::Operations::Stub& operations() { return *operations_; }

  // Converts "source" to `destination`, both in data().
  tessera::v1::ConvertRequest Request(absl::string_view destination) const;
  absl::StatusOr<Operation> Convert(const tessera::v1::ConvertRequest& request);
  absl::StatusOr<Operation> Get(const std::string& name);
  // Without a timeout, waits until the job has ended.
  absl::StatusOr<Operation> Wait(
      const std::string& name,
      std::optional<absl::Duration> timeout = std::nullopt);
  absl::Status Cancel(const std::string& name);
  absl::Status Delete(const std::string& name);
  absl::StatusOr<google::longrunning::ListOperationsResponse> List(
      const std::string& filter = "", int page_size = 0,
      const std::string& page_token = "");

 protected:
  const std::string directory_;

 private:
  std::string token_;
  std::unique_ptr<tessera::v1::JobService::Stub> jobs_;
  std::unique_ptr<google::longrunning::Operations::Stub> operations_;
};

class JobServer : public JobClient {
 public:
  struct Settings {
    ServerOptions options;  // roots and state_dir are filled in
    std::string tokens;     // text of a tokens file; empty: none
    uint64_t log_step_bytes = 1;
    std::string listen = "127.0.0.1:0";
    bool hold_memory = false;  // all of it, until ReleaseMemory
  };

  explicit JobServer(const std::string& directory)
      : JobServer(directory, Settings()) {}
  JobServer(const std::string& directory, Settings settings);
  ~JobServer() { Stop(); }

  // Like SIGTERM; jobs that have not ended continue in the next server.
  void Stop(absl::Duration drain = absl::ZeroDuration());

  // Like SIGHUP, after the tokens file was replaced by this one.
  void ReloadTokens(absl::string_view tokens);

  void ReleaseMemory() { held_memory_ = Reservation(); }

  const std::string& address() const { return address_; }

  JobManager& manager() { return *manager_; }
  MemoryBudget& budget() { return *budget_; }
  Metrics& metrics() { return metrics_; }
  HookedFileSystem& fs() { return fs_; }

 private:
  ServerOptions options_;
  HookedFileSystem fs_;
  Metrics metrics_;
  std::unique_ptr<Access> access_;
  std::unique_ptr<Admission> admission_;
  std::unique_ptr<MemoryBudget> budget_;
  Reservation held_memory_;
  std::unique_ptr<JobRunner> runner_;
  std::unique_ptr<JobJournal> journal_;
  std::unique_ptr<JobManager> manager_;
  std::unique_ptr<JobService> job_service_;
  std::unique_ptr<OperationsService> operations_service_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

tessera::v1::JobMetadata MetadataOf(const Operation& operation);
absl::Status ErrorOf(const Operation& operation);

}  // namespace dcp::server

#endif  // TESTS_SERVER_JOBS_JOB_SERVER_H_
