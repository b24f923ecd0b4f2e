// SPDX-License-Identifier: Apache-2.0
// JobRunner: carries out one job: converts the client's message to dcp's
// options, calls ConvertCheckpoint or VerifyCheckpoint, and converts the result
// to a message. Paths are checked when a job is submitted and again when it
// runs, since links may have changed and clients may have lost rights; each
// file is checked when it is opened. Stateless; any number of threads.
#ifndef SERVER_JOBS_JOB_RUNNER_H_
#define SERVER_JOBS_JOB_RUNNER_H_

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "dcp/checkpoint/convert/convert_journal.h"
#include "dcp/io/file_system.h"
#include "dcp/io/pipeline.h"
#include "server/access/access.h"
#include "server/jobs/job.h"
#include "server/options/server_options.h"
#include "tessera/v1/job_service.pb.h"

namespace dcp::server {

// The work that a job is about to do.
struct JobSize {
  uint64_t num_files = 0;
  uint64_t num_bytes = 0;   // read and written
  uint64_t bytes_kept = 0;  // those that an earlier run has done
};

// Connects a running job and its supervisor. Outlives the run.
struct JobControls {
  std::stop_token stop;
  TransferStats stats;
  // Records of the job's runs, and whether the written files stay after a stop.
  ConvertJournal log;
  // Called on the thread of the run; never empty.
  std::function<void(const JobSize&)> on_plan;
  std::function<void()> on_finishing;
};

class JobRunner {
 public:
  // All outlive this.
  JobRunner(FileSystem& fs, const Access& access, const ServerOptions& options)
      : fs_(fs), access_(access), options_(options) {}

  const Access& access() const { return access_; }

  // `bytes` are the StableBytes of a request to JobService. InvalidArgument
  // names the field, PermissionDenied the path.
  absl::StatusOr<JobRequest> Check(JobKind kind, std::string bytes,
                                   const Client& client) const;

  // The work that the job would do, as a serialized Any of a ConvertResult.
  // Reads the source's index.
  absl::StatusOr<std::string> Plan(const JobRequest& request,
                                   const Client& client,
                                   std::stop_token stop) const;

  // Whether that client may still use the job's paths: PermissionDenied if not.
  // Looks at the disk.
  absl::Status CheckRights(const JobRequest& request,
                           const std::string& client) const;

  // Runs a job of that client to completion and returns the result as a
  // serialized Any. Cancelled after a stop. If `controls.stop` is requested
  // from the beginning, or the client no longer has the right, it only removes
  // the files of earlier runs, unless they had completed. A client that loses
  // the right while the job runs can no longer publish the result.
  absl::StatusOr<std::string> Run(const JobRequest& request,
                                  const std::string& client,
                                  JobControls& controls) const;

 private:
  FileSystem& fs_;
  const Access& access_;
  const ServerOptions& options_;
};

}  // namespace dcp::server

#endif  // SERVER_JOBS_JOB_RUNNER_H_
