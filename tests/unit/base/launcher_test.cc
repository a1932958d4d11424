#include "base/launcher.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <initializer_list>
#include <utility>

namespace fourfold {
namespace {

class LaunchedBy : public ::testing::Test {
 protected:
  LaunchedBy() {
    for (const char* name :
         {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
          "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID",
          "SLURM_NTASKS_PER_NODE", "SLURM_STEP_TASKS_PER_NODE", "SLURM_NODEID", "PMI_RANK",
          "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "PALS_RANKID", "PALS_SIZE",
          "PALS_LOCAL_RANKID", "PALS_LOCAL_SIZE"}) {
      unsetenv(name);
    }
  }
  static void set(std::initializer_list<std::pair<const char*, const char*>> values) {
    for (const auto& [name, value] : values) setenv(name, value, 1);
  }
};

TEST_F(LaunchedBy, Hand) { EXPECT_FALSE(launched_process()); }

TEST_F(LaunchedBy, OpenMpi) {
  set({{"OMPI_COMM_WORLD_RANK", "5"}, {"OMPI_COMM_WORLD_SIZE", "8"}});
  ASSERT_TRUE(launched_process());
  EXPECT_EQ(launched_process()->rank, 5);
  EXPECT_EQ(launched_process()->size, 8);
  EXPECT_FALSE(launched_process()->local_rank);
  EXPECT_FALSE(launched_process()->local_size);
  set({{"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}});
  EXPECT_EQ(launched_process()->local_rank, 1);
  EXPECT_EQ(launched_process()->local_size, 4);
  EXPECT_EQ(launched_process()->launcher, "mpirun (Open MPI)");
}

TEST_F(LaunchedBy, SlurmsStepButNotItsScript) {
  set({{"SLURM_PROCID", "6"}, {"SLURM_LOCALID", "2"}, {"SLURM_NODEID", "1"}});
  EXPECT_FALSE(launched_process()) << "a batch script";
  set({{"SLURM_STEP_NUM_TASKS", "11"}, {"SLURM_STEP_TASKS_PER_NODE", "4(x2),3"}});
  ASSERT_TRUE(launched_process());
  EXPECT_EQ(launched_process()->local_rank, 2);
  EXPECT_EQ(launched_process()->local_size, 4);
  set({{"SLURM_NODEID", "2"}});
  EXPECT_EQ(launched_process()->local_size, 3);
  set({{"SLURM_NODEID", "3"}});
  EXPECT_FALSE(launched_process()->local_size);
  set({{"SLURM_NTASKS_PER_NODE", "5"}, {"SLURM_STEP_TASKS_PER_NODE", "4(x"}});
  EXPECT_EQ(launched_process()->local_size, 5);
}

TEST_F(LaunchedBy, PalsAndMpich) {
  set({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "1"}});
  ASSERT_TRUE(launched_process());
  EXPECT_EQ(launched_process()->launcher, "mpiexec");
  EXPECT_EQ(launched_process()->local_size, 1);
  set({{"PALS_RANKID", "1"}, {"PALS_SIZE", "2"}, {"PALS_LOCAL_RANKID", "1"}});
  EXPECT_EQ(launched_process()->launcher, "PALS");
  EXPECT_EQ(launched_process()->local_rank, 1);
}

TEST_F(LaunchedBy, NobodyWhoContradictsHimself) {
  set({{"PMI_RANK", "2"}, {"PMI_SIZE", "2"}});
  EXPECT_FALSE(launched_process());
  set({{"PMI_RANK", "-1"}});
  EXPECT_FALSE(launched_process());
  set({{"PMI_RANK", "one"}});
  EXPECT_FALSE(launched_process());
}

}  // namespace
}  // namespace fourfold
