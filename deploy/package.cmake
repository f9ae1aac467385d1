# SPDX-License-Identifier: Apache-2.0
# The Debian packages that `cpack -G DEB` makes in a build folder from what is built there: one for each component of
# deploy/install.cmake. deploy/debian/ has their scripts, and complete.py, which adds what Debian wants of every package.
set(GPULOOM_PACKAGE_MAINTAINER "The gpuloom authors" CACHE STRING "Who answers for the packages: NAME <ADDRESS>")
set(CPACK_PACKAGE_NAME gpuloom)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT ${GPULOOM_PACKAGE_MAINTAINER})
set(CPACK_COMPONENTS_ALL node softgpu kubectl)
if(GPULOOM_AGENT)
  list(APPEND CPACK_COMPONENTS_ALL agent)
endif()
# By DESTDIR, because settings lie outside the prefix.
set(CPACK_SET_DESTDIR ON)
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_THREADS 0)

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_SECTION admin)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(exactly "(= ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})")

set(CPACK_DEBIAN_NODE_PACKAGE_NAME gpuloom)
set(CPACK_DEBIAN_NODE_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_NODE_PACKAGE_SUGGESTS "gpuloom-softgpu, gpuloom-agent")
set(CPACK_COMPONENT_NODE_DESCRIPTION "shares a GPU between CUDA programs
Runs CUDA programs of several users or services on one NVIDIA GPU, each with
its own memory quota and share of the GPU's time. The programs get no access
to the device: their CUDA calls go to a process that runs them.")

set(CPACK_DEBIAN_AGENT_PACKAGE_NAME gpuloom-agent)
set(CPACK_DEBIAN_AGENT_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_AGENT_PACKAGE_DEPENDS "gpuloom ${exactly}")
set(CPACK_COMPONENT_AGENT_DESCRIPTION "shares a node's GPUs between pods of Kubernetes
The device plugin of gpuloom as a service of the node, for clusters that do
not run it as pods: it offers slots of the node's GPUs to the kubelet, and
gives pods what the node's policy allows.")

set(CPACK_DEBIAN_SOFTGPU_PACKAGE_NAME gpuloom-softgpu)
set(CPACK_DEBIAN_SOFTGPU_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_SOFTGPU_PACKAGE_DEPENDS "gpuloom ${exactly}")
set(CPACK_COMPONENT_SOFTGPU_DESCRIPTION "runs CUDA programs on the processor
A CUDA driver that executes kernels on the processor, slowly. With it gpuloom
can be tried, and programs be tested, on machines without a GPU.")

set(CPACK_DEBIAN_KUBECTL_PACKAGE_NAME kubectl-gpuloom)
set(CPACK_DEBIAN_KUBECTL_PACKAGE_ARCHITECTURE all)
set(CPACK_COMPONENT_KUBECTL_DESCRIPTION "asks gpuloom on all nodes of a cluster
A plugin of kubectl that asks the agents of gpuloom on all nodes, and puts
their answers together: who uses the cluster's GPUs, and how much.")

foreach(component NODE AGENT)
  string(TOLOWER ${component} name)
  file(GLOB scripts CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/deploy/debian/${name}/*)
  set(CPACK_DEBIAN_${component}_PACKAGE_CONTROL_EXTRA ${scripts})
endforeach()
configure_file(${PROJECT_SOURCE_DIR}/deploy/debian/complete.cmake.in ${PROJECT_BINARY_DIR}/packaging/complete.cmake @ONLY)
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_BINARY_DIR}/packaging/complete.cmake)
include(CPack)
