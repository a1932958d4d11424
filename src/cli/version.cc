#include <cpuid.h>
#include <fmt/core.h>

#include <memory>
#include <string>

#include "cli/build_info.h"
#include "cli/command.h"

namespace fourfold::cli {
namespace {

// AMX is not among __builtin_cpu_supports' names in gcc 12: CPUID leaf 7, EDX bit 22 (bf16 tiles).
bool has_amx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d >> 22 & 1) != 0;
}

std::string cpu_features() {
  std::string text;
  const auto add = [&](bool has, const char* name) {
    if (has) text += (text.empty() ? "" : " ") + std::string(name);
  };
  add(__builtin_cpu_supports("avx2"), "avx2");
  add(__builtin_cpu_supports("fma"), "fma");
  add(__builtin_cpu_supports("avx512f"), "avx512");
  add(__builtin_cpu_supports("avx512bf16"), "avx512-bf16");
  add(has_amx(), "amx-bf16");
  return text.empty() ? "none beyond the base set" : text;
}

int version() {
  fmt::print("fourfold   {}\ncommit     {}\ncompiler   {}\n", FOURFOLD_VERSION, kBuildCommit,
             kBuildCompiler);
  fmt::print("LibTorch   {}\nMPI        {}\nNCCL       {}\nCUDA       {}\nio_uring   {}\n",
             kBuildTorch, kBuildMpi, kBuildNccl, kBuildCuda, kBuildIoUring);
  fmt::print("CPU        {}\n", cpu_features());
  return 0;
}

}  // namespace

Command version_command_line() {
  return {"version",
          "says what this program was built from and with",
          "Prints version, commit, compiler, LibTorch, MPI, NCCL, CUDA, io_uring and the features "
          "of this CPU; what is out says why.",
          {},
          {"fourfold version"},
          [] { return version(); }};
}

}  // namespace fourfold::cli
