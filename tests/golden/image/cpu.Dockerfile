# cpu: Horovod for tensorflow and mxnet on Open MPI, and an sshd for the ranks.
FROM debian:bookworm-slim AS build
RUN export DEBIAN_FRONTEND=noninteractive && apt-get update -qq \
 && apt-get install -y -qq --no-install-recommends \
      binutils ca-certificates g++ libopenmpi-dev make openmpi-bin python3-dev python3-venv >/dev/null \
 && apt-get clean && rm -rf /var/lib/apt/lists/*
RUN python3 -c 'import sys; v = sys.version_info[:2]; v == (3, 11) or sys.exit("this flavour is locked for Python 3.11, and the base has %d.%d" % v)'

# Certificates that this machine trusts beyond its distribution, such as that of a proxy that intercepts TLS. They are not
# part of the tag, and only this stage has them.
COPY ca/extra.pem /kit/ca/extra.pem
RUN cat /etc/ssl/certs/ca-certificates.crt /kit/ca/extra.pem >/kit/ca/bundle.pem
ENV PIP_CERT=/kit/ca/bundle.pem PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore \
    PIP_PROGRESS_BAR=off PIP_NO_DEPS=1 PIP_REQUIRE_HASHES=1

RUN python3 -m venv /opt/venv
COPY requirements/build.txt /kit/requirements/build.txt
RUN /opt/venv/bin/pip install -q -r /kit/requirements/build.txt
COPY requirements/tensorflow.txt /kit/requirements/tensorflow.txt
RUN /opt/venv/bin/pip install -q -r /kit/requirements/tensorflow.txt
COPY requirements/mxnet.txt /kit/requirements/mxnet.txt
RUN /opt/venv/bin/pip install -q -r /kit/requirements/mxnet.txt
COPY requirements/horovod.txt /kit/requirements/horovod.txt
# kit's changes to Horovod (images/horovod): each patch says why.
RUN export DEBIAN_FRONTEND=noninteractive && apt-get update -qq \
 && apt-get install -y -qq --no-install-recommends patch >/dev/null \
 && apt-get clean && rm -rf /var/lib/apt/lists/*
COPY horovod/ /kit/horovod/
RUN PATH=/opt/venv/bin:$PATH sh /kit/horovod/prepare /kit/requirements/horovod.txt /kit/sources
# Horovod is compiled. One compiler process needs up to 1.7 GB, so memory limits their number.
RUN jobs=$(awk -v cores=$(nproc) '/MemAvailable/ { n = int($2 / 2e6); if (n > cores) n = cores; print (n < 1) ? 1 : n }' /proc/meminfo) \
 && export PATH=/opt/venv/bin:$PATH MAKEFLAGS=-j$jobs HOROVOD_WITH_MPI=1 HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_PYTORCH=1 \
 && export HOROVOD_WITH_TENSORFLOW=1 \
 && export HOROVOD_WITH_MXNET=1 \
 && PIP_REQUIRE_HASHES=0 pip install -q --no-build-isolation --no-index --find-links /kit/sources horovod
# Remove what only a compiler or a test needs. The .pyc files stay: otherwise each rank would first compile TensorFlow.
RUN cd /opt/venv && bin/pip uninstall -q -y cmake wheel && cd lib/python3.*/site-packages \
 && rm -rf clang libclang-* tensorflow/include tensorflow/xla_aot_runtime_src mxnet/include \
 && find . -path './*/tests' \( -path './numpy/*' -o -path './h5py/*' -o -path './horovod/*' -o -path './psutil/*' \) -prune -exec rm -rf {} + \
 && find . -name '*.a' -delete \
 && find horovod mxnet -name '*.so*' -type f -exec strip --strip-unneeded {} +

# A separate stage after Horovod: a change here takes a second to compile, and repeats nothing above.
FROM build AS programs
COPY src/ /kit/src/
RUN mkdir /kit/programs && cd /kit/programs \
 && mpicc -O3 -std=gnu11 -Wall -Wextra -o mpi_perf /kit/src/mpi_perf.c \
 && gcc -O2 -std=gnu11 -Wall -Wextra -static -o kit-fork /kit/src/kit_fork.c && strip mpi_perf kit-fork

# rclone reads object stores.
FROM build AS rclone
COPY rclone/get-rclone /kit/get-rclone
COPY requirements/rclone.txt /kit/requirements/rclone.txt
RUN sh /kit/get-rclone /kit/requirements/rclone.txt /opt/venv/bin/python

FROM debian:bookworm-slim
RUN export DEBIAN_FRONTEND=noninteractive && apt-get update -qq \
 && apt-get install -y -qq --no-install-recommends \
      ca-certificates iproute2 libgfortran5 libgomp1 libquadmath0 openmpi-bin openssh-client openssh-server procps python3 >/dev/null \
 && apt-get clean && rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /etc/ssh/ssh_host_*
COPY --from=build /opt/venv /opt/venv
COPY --from=rclone /kit/rclone /opt/kit/rclone
COPY --from=programs /kit/programs/ /opt/kit/bin/
COPY openmpi/ /etc/openmpi/
ENV PATH=/opt/kit/bin:/opt/venv/bin:$PATH PYTHONUNBUFFERED=1 TF_CPP_MIN_LOG_LEVEL=2
# Host keys belong to a cluster, never to an image. With the password "!" root could not log in by key either. With "*"
# root has no password, but can.
RUN mkdir -p /etc/kit /run/sshd \
 && rm -f /etc/ssh/ssh_host_* \
 && usermod -p '*' root \
 && sed -i '1i Include /etc/kit/ssh/config' /etc/ssh/ssh_config
# The head connects to each node when a run starts. Before OpenSSH 10, the key exchange that ssh prefers (sntrup761) takes
# most of the CPU time of a connection. Later versions prefer one that is post-quantum and fast: they keep their order.
# OpenSSH before 8.1 does not know `^`.
RUN ssh -Q kex | grep -q mlkem768 || ! ssh -G -o 'KexAlgorithms=^curve25519-sha256' x >/dev/null 2>&1 \
 || printf 'Host *\n  KexAlgorithms ^curve25519-sha256\n' >>/etc/ssh/ssh_config
COPY sshd_config /opt/kit/etc/sshd_config
COPY lib/ /opt/kit/lib/
COPY bin/ /opt/kit/bin/
# Every Python that runs as a rank can show its stack. kit-mpirun comes before Open MPI's programs in PATH.
RUN for name in mpirun mpiexec orterun; do ln -sf kit-mpirun "/opt/kit/bin/$name"; done \
 && python3 -m compileall -q /opt/kit/lib \
 && folder=$(python3 -c 'import site; print(site.getsitepackages()[0])') \
 && mkdir -p "$folder" && printf '/opt/kit/lib\nimport kit_stacks\n' >"$folder/kit.pth"
LABEL kit.flavour=cpu
ENV SSH_PORT=33
CMD ["/opt/kit/bin/start.sh"]
