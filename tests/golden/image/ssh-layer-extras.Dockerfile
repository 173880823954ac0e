# ssh-layer: an sshd for the ranks, and kit's programs, on a base that has Horovod and Open MPI.
# rclone reads object stores. The certificates that this machine trusts beyond its distribution are in this stage alone.
FROM nvcr.io/nvidia/tensorflow:23.03-tf2-py3 AS rclone
USER root
COPY ca/extra.pem /kit/ca/extra.pem
COPY rclone/get-rclone /kit/get-rclone
COPY requirements/rclone.txt /kit/requirements/rclone.txt
RUN sh /kit/get-rclone /kit/requirements/rclone.txt

# By kit-fork, Open MPI's daemons start nothing but the run. Only this stage has what compiles it.
FROM nvcr.io/nvidia/tensorflow:23.03-tf2-py3 AS fork
USER root
COPY layer/fork /kit/layer/fork
COPY src/kit_fork.c /kit/src/kit_fork.c
RUN sh /kit/layer/fork /kit/src/kit_fork.c /kit/programs

FROM nvcr.io/nvidia/tensorflow:23.03-tf2-py3
USER root
COPY layer/ /kit/layer/
RUN sh /kit/layer/prepare
COPY --from=rclone /kit/rclone /opt/kit/rclone
# With the base's Open MPI, if it can compile. If not, mpi_perf reports that.
COPY src/ /kit/src/
RUN mkdir -p /opt/kit/bin \
 && { mpicc -O3 -std=gnu11 -o /opt/kit/bin/mpi_perf /kit/src/mpi_perf.c \
   || { printf '#!/bin/sh\necho "mpi_perf: not in this image: its base has no mpicc that works" >&2\nexit 2\n' >/opt/kit/bin/mpi_perf \
     && chmod 755 /opt/kit/bin/mpi_perf; }; }
COPY --from=fork /kit/programs/ /opt/kit/bin/
RUN sh /kit/layer/daemons
# That of the base tests a program of the base, which does not run here. Swarm ends what is not healthy.
HEALTHCHECK NONE
ENV PATH=/opt/kit/bin:/opt/kit/prrte:$PATH PYTHONUNBUFFERED=1
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
LABEL kit.flavour=ssh-layer
ENV SSH_PORT=33
CMD ["/opt/kit/bin/start.sh"]
# Last, so that a change repeats nothing else, and hosts that have the other layers receive only these.
COPY extra/requirements.txt /opt/kit/etc/requirements.txt
# Debian 12 and Ubuntu 24.04 protect their own Python. An image has no other.
RUN PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install --no-cache-dir -r /opt/kit/etc/requirements.txt pandas
