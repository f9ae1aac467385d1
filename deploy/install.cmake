# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` installs, by component; the targets' own folders say so with gpuloom_install.
#   node      gpuloom, scheduler, executor, libraries for tenants, manual pages, completion, the unit that needs no Kubernetes
#   agent     gpuloom-agent, its units and its policy
#   softgpu   the software GPU
#   kubectl   the plugin of kubectl
# Programs find everything else from their own path (agent/node/layout.h), so the folder can be moved; only the units name
# them by absolute paths.
include(GNUInstallDirs)
set(GPULOOM_HELPERS_DIR ${CMAKE_INSTALL_LIBEXECDIR}/gpuloom)  # programs that others start
set(GPULOOM_LIBRARIES_DIR ${CMAKE_INSTALL_LIBDIR}/gpuloom)    # none of them is for the loader's search path
# Installing builds nothing: what it needs is this target, and not every test.
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)
add_custom_target(gpuloom_installed)

# gpuloom_install(TARGET COMPONENT FOLDER): a program or library.
function(gpuloom_install target component folder)
  add_dependencies(gpuloom_installed ${target})
  install(TARGETS ${target} COMPONENT ${component}
    RUNTIME DESTINATION ${folder} LIBRARY DESTINATION ${folder} NAMELINK_SKIP)
endfunction()

# gpuloom_install_files(COMPONENT FILE …): units and settings, of deploy/systemd/.
function(gpuloom_install_files component)
  foreach(file ${ARGN})
    install(CODE "
      set(file [[${PROJECT_SOURCE_DIR}/deploy/systemd/${file}]])
      set(bin \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}\")
      set(helpers \"\${CMAKE_INSTALL_PREFIX}/${GPULOOM_HELPERS_DIR}\")
      include([[${PROJECT_SOURCE_DIR}/deploy/install_file.cmake]])" COMPONENT ${component})
  endforeach()
endfunction()

# What no target builds.
gpuloom_install_files(node gpuloom-scheduler@.service.in)
install(FILES LICENSE README.md CHANGELOG.md SECURITY.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT node)
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT node)
install(DIRECTORY deploy/examples DESTINATION ${CMAKE_INSTALL_DOCDIR}/deploy COMPONENT node)
if(GPULOOM_AGENT)
  gpuloom_install_files(agent gpuloom-schedulers.service.in gpuloom-agent.service.in policy.yaml)
endif()
install(PROGRAMS deploy/kubectl-gpuloom deploy/kubectl_complete-gpuloom DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT kubectl)
