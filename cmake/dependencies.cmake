# What fourfold builds on. Required: fmt, toml++, nlohmann-json, CLI11, PCRE2 and, for the runtime,
# LibTorch. Optional, detected: MPI, CUDA, io_uring.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
# LibTorch brings headers of another fmt; this folder with the right ones comes before them.
get_target_property(FMT_INCLUDE fmt::fmt INTERFACE_INCLUDE_DIRECTORIES)
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/fmt_first)
file(CREATE_LINK ${FMT_INCLUDE}/fmt ${PROJECT_BINARY_DIR}/fmt_first/fmt SYMBOLIC)
target_include_directories(fourfold_options SYSTEM BEFORE INTERFACE
  $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/fmt_first>)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(TOMLPLUSPLUS REQUIRED IMPORTED_TARGET tomlplusplus)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
set(FOURFOLD_PCRE2_TARGET PkgConfig::PCRE2)
pkg_check_modules(LIBURING IMPORTED_TARGET liburing)

# Files that lose a choice: the twin of each (mpi.cc / no_mpi.cc, ...) is built instead.
set(FOURFOLD_EXCLUDED_SOURCES "")
set(FOURFOLD_MPI_TARGET "")
set(FOURFOLD_URING_TARGET "")
if(LIBURING_FOUND)
  set(FOURFOLD_URING_TARGET PkgConfig::LIBURING)
  list(APPEND FOURFOLD_EXCLUDED_SOURCES ckpt/no_direct_writer.cc)
else()
  list(APPEND FOURFOLD_EXCLUDED_SOURCES ckpt/uring_direct_writer.cc)
endif()

set(CMAKE_INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}" "$ORIGIN")
if(FOURFOLD_RUNTIME)
  find_package(MPI COMPONENTS CXX)
  if(MPI_CXX_FOUND)
    add_library(mpi_plain INTERFACE)
    target_link_libraries(mpi_plain INTERFACE MPI::MPI_CXX)
    target_compile_definitions(mpi_plain INTERFACE OMPI_SKIP_MPICXX=1 MPICH_SKIP_MPICXX=1)
    set(FOURFOLD_MPI_TARGET mpi_plain)
    list(APPEND FOURFOLD_EXCLUDED_SOURCES comm/no_mpi.cc)
  else()
    list(APPEND FOURFOLD_EXCLUDED_SOURCES comm/mpi.cc)
  endif()

  # LibTorch is linked plainly, not through its CMake package: a CUDA build of it then links on a
  # machine without the CUDA toolkit.
  if(Torch_DIR)
    get_filename_component(TORCH_ROOT "${Torch_DIR}/../../.." ABSOLUTE)
  else()
    file(GLOB TORCH_ROOT ${PROJECT_SOURCE_DIR}/.deps/venv/lib/python3*/site-packages/torch)
  endif()
  if(NOT EXISTS "${TORCH_ROOT}/lib/libtorch_cpu.so")
    message(FATAL_ERROR "LibTorch was not found (looked in '${TORCH_ROOT}').\n"
      "hint: run tools/setup.sh, or give -DTorch_DIR=.../share/cmake/Torch of an existing one")
  endif()
  add_library(torch_plain INTERFACE)
  target_include_directories(torch_plain SYSTEM INTERFACE
    ${TORCH_ROOT}/include ${TORCH_ROOT}/include/torch/csrc/api/include)
  target_link_directories(torch_plain INTERFACE ${TORCH_ROOT}/lib)
  target_link_libraries(torch_plain INTERFACE
    -Wl,--no-as-needed torch_cpu c10 -Wl,--as-needed)
  foreach(library torch_cuda c10_cuda)  # Registers its kernels by static initialisers.
    if(EXISTS ${TORCH_ROOT}/lib/lib${library}.so)
      target_link_libraries(torch_plain INTERFACE -Wl,--no-as-needed ${library} -Wl,--as-needed)
    endif()
  endforeach()
  set(CMAKE_BUILD_RPATH ${TORCH_ROOT}/lib)
  list(APPEND CMAKE_INSTALL_RPATH ${TORCH_ROOT}/lib)
endif()
