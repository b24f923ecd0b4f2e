// SPDX-License-Identifier: Apache-2.0
// JobClient: starts, inspects, awaits and cancels jobs on a daemon. Calls that
// fail because the daemon cannot be reached are retried, including those that
// start a job, because each carries a request id. Blocking; thread-safe;
// statuses begin with the call's name.
#ifndef CLIENT_JOB_CLIENT_H_
#define CLIENT_JOB_CLIENT_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/channel.h"
#include "google/longrunning/operations_proto.grpc.pb.h"
#include "tessera/v1/checkpoint_service.pb.h"
#include "tessera/v1/job_service.grpc.pb.h"

namespace dcp::client {

struct Job {
  std::string name;  // "operations/..."; empty for a plan
  tessera::v1::JobMetadata metadata;
  bool done = false;
  // Set once the job is done: how it ended, with one of the results if OK.
  absl::Status status;
  std::optional<tessera::v1::ConvertResult> converted;
  std::optional<tessera::v1::VerifyReport> verified;
};

// DataLoss if `operation` does not describe a job.
absl::StatusOr<Job> JobFrom(const google::longrunning::Operation& operation);

struct JobPage {
  std::vector<Job> jobs;
  std::string next_page_token;  // empty: the last page
};

class JobClient {
 public:
  explicit JobClient(std::shared_ptr<const Channel> channel);

  // A request without an id gets one. With options.validate_only the job is
  // already done, has no name, and `converted` is the plan.
  absl::StatusOr<Job> Convert(tessera::v1::ConvertRequest request,
                              const CallOptions& options = {});
  absl::StatusOr<Job> Reshard(tessera::v1::ReshardRequest request,
                              const CallOptions& options = {});
  absl::StatusOr<Job> Consolidate(tessera::v1::ConsolidateRequest request,
                                  const CallOptions& options = {});
  absl::StatusOr<Job> Verify(tessera::v1::VerifyRequest request,
                             const CallOptions& options = {});

  absl::StatusOr<Job> Get(const std::string& name,
                          const CallOptions& options = {});
  // An example of `filter`: "state = RUNNING AND kind = RESHARD".
  absl::StatusOr<JobPage> List(const std::string& filter, int page_size,
                               const std::string& page_token,
                               const CallOptions& options = {});
  // The jobs of all pages.
  absl::StatusOr<std::vector<Job>> ListAll(const std::string& filter,
                                           const CallOptions& options = {});

  // Waits until the job is done; Job::status says how it ended.
  absl::StatusOr<Job> Wait(const std::string& name,
                           const CallOptions& options = {});
  // The same, and calls `on_change` in this thread for each change. Resumes
  // after the connection broke.
  absl::StatusOr<Job> Watch(const std::string& name,
                            absl::FunctionRef<void(const Job&)> on_change,
                            const CallOptions& options = {});

  // Asks the job to stop; it ends CANCELLED unless it finishes first.
  absl::Status Cancel(const std::string& name, const CallOptions& options = {});
  // Forgets a job that is done.
  absl::Status Delete(const std::string& name, const CallOptions& options = {});

 private:
  // Shared with the program's other clients.
  const std::shared_ptr<const Channel> channel_;
  const std::unique_ptr<tessera::v1::JobService::Stub> jobs_;
  const std::unique_ptr<google::longrunning::Operations::Stub> operations_;
};

}  // namespace dcp::client

#endif  // CLIENT_JOB_CLIENT_H_
