// SPDX-License-Identifier: Apache-2.0
// JobSpec: the work that a job's request asks for. All checks of a request are
// made here, when it is submitted and again when the job begins: a request is
// hostile, and rights and links may have changed since. Any thread.
#ifndef SERVER_JOBS_JOB_SPEC_H_
#define SERVER_JOBS_JOB_SPEC_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "dcp/checkpoint/convert/convert_options.h"
#include "dcp/plan/pieces.h"
#include "server/access/access.h"
#include "server/jobs/job.h"
#include "server/options/server_options.h"
#include "tessera/v1/job_service.pb.h"

namespace dcp::server {

// A parsed request that has passed the checks.
struct JobSpec {
  std::string source;  // paths without symbolic links
  std::string destination;
  // For all kinds except VERIFY. A mapping has the config.json of the request
  // only.
  ConvertOptions convert;
  std::optional<Share> share = std::nullopt;
  double sample_percent = 100;
  tessera::v1::JobOptions options;
};

// Parses a request of this kind that is being submitted. InvalidArgument and
// PermissionDenied name the field.
absl::StatusOr<JobSpec> ReadRequest(JobKind kind, const std::string& bytes,
                                    const Client& client,
                                    const ServerOptions& server);

// Parses a submitted job and makes all checks again. FailedPrecondition if the
// destination leads elsewhere by now.
absl::StatusOr<JobSpec> ReadAgain(const JobRequest& request,
                                  const Client& client,
                                  const ServerOptions& server);

}  // namespace dcp::server

#endif  // SERVER_JOBS_JOB_SPEC_H_
