// SPDX-License-Identifier: Apache-2.0

#include "server/jobs/job.h"

#include <vector>

#include "gtest/gtest.h"

namespace dcp::server {
namespace {

const std::vector<JobState> kStates = {
    JobMetadata::PENDING,   JobMetadata::PLANNING,  JobMetadata::RUNNING,
    JobMetadata::FINISHING, JobMetadata::SUCCEEDED, JobMetadata::FAILED,
    JobMetadata::CANCELLED};

TEST(Job, OneThatHasEndedStaysAsItIs) {
  for (const JobState from : kStates) {
    for (const JobState to : kStates) {
      if (!HasEnded(from) && from != to) continue;
      EXPECT_FALSE(MayBecome(from, to))
          << StateName(from) << " to " << StateName(to);
    }
  }
}

TEST(Job, EveryUnfinishedOneMayFailAndBeCancelled) {
  for (const JobState from : kStates) {
    if (HasEnded(from)) continue;
    EXPECT_TRUE(MayBecome(from, JobMetadata::FAILED)) << StateName(from);
    EXPECT_TRUE(MayBecome(from, JobMetadata::CANCELLED)) << StateName(from);
    if (from == JobMetadata::PENDING) continue;
    EXPECT_TRUE(MayBecome(from, JobMetadata::PENDING)) << StateName(from);
  }
}

TEST(Job, RunsPhaseByPhase) {
  EXPECT_TRUE(MayBecome(JobMetadata::PENDING, JobMetadata::PLANNING));
  EXPECT_TRUE(MayBecome(JobMetadata::PLANNING, JobMetadata::RUNNING));
  EXPECT_TRUE(MayBecome(JobMetadata::RUNNING, JobMetadata::FINISHING));
  EXPECT_TRUE(MayBecome(JobMetadata::FINISHING, JobMetadata::SUCCEEDED));
  EXPECT_FALSE(MayBecome(JobMetadata::PENDING, JobMetadata::RUNNING));
  EXPECT_FALSE(MayBecome(JobMetadata::PENDING, JobMetadata::SUCCEEDED));
  EXPECT_FALSE(MayBecome(JobMetadata::FINISHING, JobMetadata::RUNNING));
}

TEST(Job, StatesAndKindsHaveNames) {
  for (const JobState state : kStates) EXPECT_NE(StateName(state), "unknown");
  EXPECT_EQ(KindName(JobMetadata::RESHARD), "reshard");
  EXPECT_EQ(KindName(JobMetadata::KIND_UNSPECIFIED), "unknown");
}

}  // namespace
}  // namespace dcp::server
