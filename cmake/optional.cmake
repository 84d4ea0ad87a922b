# What may be left out of a build: DECLOCK_TCP and the like. AUTO, as they are at first, is ON where its development files
# are; ON without them is an error. Sets DECLOCK_HAS_TCP and the like.
function(declock_optional name what package found)
  set(DECLOCK_${name} AUTO CACHE STRING "${what}: ON, OFF, or AUTO: if ${package} is there")
  set(has ${found})
  if(NOT DECLOCK_${name} STREQUAL AUTO)
    set(has ${DECLOCK_${name}})
    if(has AND NOT found)
      message(FATAL_ERROR "DECLOCK_${name} is ON, but ${package} is not there; install it, or use -DDECLOCK_${name}=OFF")
    endif()
  elseif(NOT found)
    message(STATUS "declock without ${what}: ${package} is not there")
  endif()
  if(has)
    set(DECLOCK_HAS_${name} ON PARENT_SCOPE)
  else()
    set(DECLOCK_HAS_${name} OFF PARENT_SCOPE)
  endif()
endfunction()

pkg_check_modules(libfabric IMPORTED_TARGET libfabric>=1.17)
declock_optional(TCP "the fabric tcp" libfabric-dev "${libfabric_FOUND}")

find_path(verbs_header infiniband/verbs.h)
find_library(libibverbs ibverbs)
if(verbs_header AND libibverbs)
  set(verbs_found ON)
endif()
declock_optional(VERBS "the fabric verbs" libibverbs-dev "${verbs_found}")

find_path(zookeeper_header zookeeper/zookeeper.h)
find_library(libzookeeper zookeeper_mt)
if(zookeeper_header AND libzookeeper)
  set(zookeeper_found ON)
endif()
declock_optional(ZOOKEEPER "ZooKeeper" libzookeeper-mt-dev "${zookeeper_found}")

find_package(prometheus-cpp CONFIG QUIET)
declock_optional(PROMETHEUS "metrics for Prometheus" prometheus-cpp-dev "${prometheus-cpp_FOUND}")

# The tests have no variants for what is left out.
if(DECLOCK_TESTS AND NOT (DECLOCK_HAS_TCP AND DECLOCK_HAS_ZOOKEEPER AND DECLOCK_HAS_PROMETHEUS))
  message(FATAL_ERROR "The tests need DECLOCK_TCP, DECLOCK_ZOOKEEPER and DECLOCK_PROMETHEUS; run scripts/deps, or use "
                      "-DDECLOCK_TESTS=OFF")
endif()
