# Debian packages by CPack: one for each component.
set(package_library libdeclock${abi})
set(package_dev libdeclock-dev)
set(package_tools declock)
set(CPACK_COMPONENTS_ALL library dev)
if(TARGET declock)
  list(APPEND CPACK_COMPONENTS_ALL tools)
endif()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "The DecLock project <declock@localhost>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

# The library says which package who links with it depends on, and has the dynamic linker's cache renewed.
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY >=)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA ${CMAKE_CURRENT_SOURCE_DIR}/triggers)

set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME ${package_library})
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SHLIBDEPS ON)
if(DECLOCK_HAS_TCP)  # loaded when it is needed, so not found by looking at what is linked
  set(CPACK_DEBIAN_LIBRARY_PACKAGE_DEPENDS libfabric1)
  set(CPACK_DEBIAN_TOOLS_PACKAGE_DEPENDS libfabric1)
endif()

set(CPACK_DEBIAN_DEV_PACKAGE_NAME ${package_dev})
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "${package_library} (= ${PROJECT_VERSION})")

set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME ${package_tools})
set(CPACK_DEBIAN_TOOLS_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SHLIBDEPS ON)

set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")  # each has its own, as its first line
set(about "DecLock is a reader-writer lock for the processes of one machine, in
shared memory, and for machines with disaggregated memory, over TCP or
RDMA. It survives the death of any process that uses it.")
set(CPACK_DEBIAN_LIBRARY_DESCRIPTION "reader-writer lock for disaggregated memory (library)
${about}")
set(CPACK_DEBIAN_DEV_DESCRIPTION "reader-writer lock for disaggregated memory (development files)
${about}

Headers for C++20 and for C, files for CMake and pkg-config, declock(3).")
set(CPACK_DEBIAN_TOOLS_DESCRIPTION "reader-writer lock for disaggregated memory (program)
${about}

The program is the memory node; it shows what locks do, measures them, and
checks them.")

gzipped(${CMAKE_SOURCE_DIR}/CHANGELOG.md changelog)
foreach(component ${CPACK_COMPONENTS_ALL})
  set(doc ${CMAKE_INSTALL_DATADIR}/doc/${package_${component}})
  install(FILES copyright ${CMAKE_CURRENT_BINARY_DIR}/changelog.gz DESTINATION ${doc} COMPONENT ${component})
endforeach()
include(CPack)
