# `cmake --install`: program, libraries, headers, man pages, and the package that
# find_package(fourfold) reads.
include(CMakePackageConfigHelpers)

set(FOURFOLD_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/fourfold)
set(FOURFOLD_INCLUDE_DIR ${CMAKE_INSTALL_INCLUDEDIR}/fourfold)

install(TARGETS fourfold_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS fourfold_core LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
set(installed_folders base layout spec policy formats plan)
if(FOURFOLD_RUNTIME)
  install(TARGETS fourfold LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  list(APPEND installed_folders device kernels comm parallel model data optim ckpt train)
endif()
foreach(folder IN LISTS installed_folders)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/src/${folder} DESTINATION ${FOURFOLD_INCLUDE_DIR}
    FILES_MATCHING PATTERN "*.h")
endforeach()
install(DIRECTORY ${PROJECT_BINARY_DIR}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1
  FILES_MATCHING PATTERN "*.1")

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/fourfoldConfig.cmake.in
  ${PROJECT_BINARY_DIR}/package/fourfoldConfig.cmake
  INSTALL_DESTINATION ${FOURFOLD_PACKAGE_DIR}
  PATH_VARS CMAKE_INSTALL_LIBDIR FOURFOLD_INCLUDE_DIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/package/fourfoldConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/package/fourfoldConfig.cmake
  ${PROJECT_BINARY_DIR}/package/fourfoldConfigVersion.cmake DESTINATION ${FOURFOLD_PACKAGE_DIR})
