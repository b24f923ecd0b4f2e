// SPDX-License-Identifier: Apache-2.0
// A job as clients see it: a google.longrunning.Operation named
// "operations/<id>", with metadata and, once it has ended, the outcome. Pure;
// any thread.
#ifndef SERVER_JOBS_JOB_OPERATION_H_
#define SERVER_JOBS_JOB_OPERATION_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "google/longrunning/operations_proto.pb.h"
#include "server/jobs/job.h"
#include "server/jobs/job_entry.h"

namespace dcp::server {

std::string OperationName(const Job& job);
// The id of a job with this name. InvalidArgument if it is not the name of an
// operation.
absl::StatusOr<std::string> JobIdFromName(absl::string_view name);
// NotFound.
absl::Status NoSuchJob(absl::string_view name);

// Sets everything except the outcome.
google::longrunning::Operation DescribeJob(const JobEntry& entry);

// `response` is a serialized google.protobuf.Any.
JobOutcome MakeOutcome(const absl::StatusOr<std::string>& response);
// DataLoss if the outcome, which comes from the journal, is malformed.
absl::Status AddOutcome(const JobOutcome& outcome,
                        google::longrunning::Operation& operation);

}  // namespace dcp::server

#endif  // SERVER_JOBS_JOB_OPERATION_H_
