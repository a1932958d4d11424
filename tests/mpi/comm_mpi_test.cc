// The collective suite and its failures as processes under mpirun.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <chrono>
#include <cstdio>

#include "comm/mpi_world.h"

namespace fourfold {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

struct Outcome {
  int exit_code;
  std::string output;
  double seconds;
};

Outcome mpirun(int ranks, const std::string& mode) {
  const auto start = std::chrono::steady_clock::now();
  const std::string command =
      "timeout 120 mpirun --oversubscribe --allow-run-as-root --bind-to none -n " +
      std::to_string(ranks) + " " COMM_RANKS " " + mode + " 2>&1 < /dev/null";
  std::FILE* pipe = popen(command.c_str(), "r");
  std::string output;
  std::array<char, 4096> buffer{};
  while (std::size_t n = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
    output.append(buffer.data(), n);
  }
  const int status = pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, output,
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()};
}

class Mpi : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!mpi_available()) GTEST_SKIP() << "this build has no MPI";
    if (std::system("command -v mpirun > /dev/null") != 0) GTEST_SKIP() << "there is no mpirun";
  }
};

class MpiRanks : public Mpi, public ::testing::WithParamInterface<int> {};

TEST_P(MpiRanks, RunTheSuiteWithTheBitsOfThreads) {
  const Outcome outcome = mpirun(GetParam(), "suite");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("threads and MPI agree"));
  std::fputs(outcome.output.c_str(), stdout);
}
INSTANTIATE_TEST_SUITE_P(Sizes, MpiRanks, ::testing::Values(2, 4, 6, 8));

TEST_F(Mpi, MismatchNamesBothCalls) {
  const Outcome outcome = mpirun(3, "mismatch");
  EXPECT_EQ(outcome.exit_code, 4);
  EXPECT_THAT(outcome.output,
              AllOf(HasSubstr("barrier #3 over world (step 5)"),
                    HasSubstr("all_reduce #3 over world (step 5, sum of 10001 F32)"),
                    HasSubstr("ranks disagree")));
}

TEST_F(Mpi, MismatchOfSizesIsFoundInALane) {
  const Outcome outcome = mpirun(2, "sizes");
  EXPECT_EQ(outcome.exit_code, 4);
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("broadcast #0 over world (step 0, 100001 F64 from 1"),
                                    HasSubstr("100000 F64 from 1, lane gather)")));
}

TEST_F(Mpi, TimeOutNamesTheMissingRank) {
  const Outcome outcome = mpirun(3, "absent");
  EXPECT_EQ(outcome.exit_code, 4);
  EXPECT_THAT(outcome.output, HasSubstr("all_reduce #0 over world (step 0, sum of 100000 F32, lane "
                                        "reduce): rank 1 did not arrive within 1 s"));
  EXPECT_LT(outcome.seconds, 20);
}

TEST_F(Mpi, WhoHearsOfAFailureSaysForWhomItWaited) {
  const Outcome outcome = mpirun(3, "chain");
  EXPECT_EQ(outcome.exit_code, 4);
  EXPECT_THAT(
      outcome.output,
      ContainsRegex("over y .*: rank 0 failed first: all_reduce #0 over x .*: rank 2 did not "
                    "arrive within 1 s; rank 1 had not arrived here"));
}

TEST_F(Mpi, AStoppedPeerIsReportedInTime) {
  const Outcome outcome = mpirun(3, "stopped");
  EXPECT_EQ(outcome.exit_code, 4) << outcome.output;
  EXPECT_THAT(outcome.output,
              ContainsRegex("all_reduce #[0-9]+ over world .*: rank 1 did not arrive within 1 s"));
  EXPECT_LT(outcome.seconds, 20);
}

TEST_F(Mpi, ARankThatThrowsEndsTheOthers) {
  const Outcome outcome = mpirun(4, "throws");
  EXPECT_THAT(outcome.exit_code, AnyOf(3, 4));
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("cause: the disk is full"),
                                    HasSubstr("rank 2 failed first: the disk is full"),
                                    HasSubstr("failed on rank 0 of 4")));
  EXPECT_LT(outcome.seconds, 20);
}

TEST(MpiLaunch, ReadsTheEnvironment) {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "SLURM_PROCID",
                           "SLURM_STEP_NUM_TASKS", "PMI_RANK", "PMI_SIZE"}) {
    unsetenv(name);
  }
  EXPECT_FALSE(mpi_launch());
  setenv("SLURM_PROCID", "3", 1);
  EXPECT_FALSE(mpi_launch()) << "a batch script";
  setenv("SLURM_STEP_NUM_TASKS", "8", 1);
  ASSERT_TRUE(mpi_launch());
  EXPECT_EQ(mpi_launch()->rank, 3);
  EXPECT_EQ(mpi_launch()->size, 8);
  EXPECT_EQ(mpi_launch()->launcher, "srun");
}

}  // namespace
}  // namespace fourfold
