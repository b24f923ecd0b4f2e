// JobRunner: carries out one job: from the client's message to dcp's options,
// to ConvertCheckpoint or VerifyCheckpoint, to the result's message. Paths are
// checked when a job is submitted and again when it runs, since links may have
// changed and clients may have lost a right; each file that it leads to is
// checked when it is opened. Stateless; any number of threads.
#ifndef SERVER_JOB_RUNNER_H_
#define SERVER_JOB_RUNNER_H_

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "dcp/checkpoint/convert_log.h"
#include "dcp/io/file_system.h"
#include "dcp/io/pipeline.h"
#include "google/protobuf/message.h"
#include "server/access.h"
#include "server/job.h"
#include "server/server_options.h"
#include "tessera/v1/job_service.pb.h"

namespace dcp::server {

// What a job is about to do.
struct JobSize {
  uint64_t num_files = 0;
  uint64_t num_bytes = 0;   // read and written
  uint64_t bytes_kept = 0;  // of them, done by an earlier run
};

// Between a running job and who watches over it. Outlives the run.
struct JobControls {
  std::stop_token stop;
  TransferStats stats;
  // Records of its runs, and whether to keep what is written after a stop.
  ConvertLog log;
  // In the thread of the run; never empty.
  std::function<void(const JobSize&)> on_plan;
  std::function<void()> on_finishing;
};

class JobRunner {
 public:
  // All outlive this.
  JobRunner(FileSystem& fs, const Access& access, const ServerOptions& options)
      : fs_(fs), access_(access), options_(options) {}

  const Access& access() const { return access_; }

  // `message` is the request of a method of JobService. InvalidArgument names
  // the field; PermissionDenied the path.
  absl::StatusOr<JobRequest> Check(JobKind kind,
                                   const google::protobuf::Message& message,
                                   const Client& client) const;

  // What the job would do: a serialized Any of a ConvertResult. Reads the
  // index of the source.
  absl::StatusOr<std::string> Plan(const JobRequest& request,
                                   const Client& client,
                                   std::stop_token stop) const;

  // Runs a job of that client to its end; returns a serialized Any of its
  // result. Cancelled after a stop. With `controls.stop` requested already, or
  // where the client may not any more, only removes what earlier runs left,
  // unless they had come to their end.
  absl::StatusOr<std::string> Run(const JobRequest& request,
                                  const std::string& client,
                                  JobControls& controls) const;

 private:
  FileSystem& fs_;
  const Access& access_;
  const ServerOptions& options_;
};

}  // namespace dcp::server

#endif  // SERVER_JOB_RUNNER_H_
