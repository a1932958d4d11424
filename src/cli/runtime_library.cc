#include "cli/runtime_library.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include <filesystem>

#include "base/error.h"

namespace fourfold::cli {
namespace {

constexpr const char* kFileName = "libfourfold.so";

// Beside the program, in the build tree and where it is installed.
std::filesystem::path library_path() {
  std::error_code failed;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", failed);
  const auto root = program.parent_path().parent_path();
  const auto installed = root / FOURFOLD_LIBDIR / kFileName;
  return std::filesystem::exists(installed, failed) ? installed : root / "lib" / kFileName;
}

Error not_loaded(const std::string& message) {
  return Error(ErrorKind::kInternal, message,
               "this command needs the runtime: build it with ./test.sh or ./quickstart.sh, or "
               "install program and libraries together");
}

void* open_library() {
  const auto path = library_path();
  std::error_code failed;
  if (!std::filesystem::exists(path, failed)) {
    throw not_loaded(fmt::format("the runtime library {} is missing", path.string()));
  }
  // Global: the plug-ins of MPI look for its symbols.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!library)
    throw not_loaded(fmt::format("the runtime library cannot be loaded: {}", dlerror()));
  return library;
}

}  // namespace

void* runtime_symbol(const std::string& name) {
  void* symbol = dlsym(open_library(), name.c_str());
  if (!symbol) {
    throw not_loaded(fmt::format("the runtime library has no {}: it is of another version", name));
  }
  return symbol;
}

}  // namespace fourfold::cli
