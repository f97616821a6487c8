package kafkasuite;

import org.junit.jupiter.api.extension.ConditionEvaluationResult;
import org.junit.jupiter.api.extension.ExecutionCondition;
import org.junit.jupiter.api.extension.ExtensionContext;

/** Which of a test's variants run: separate controllers, not combined nodes; the group protocols that were chosen. */
public final class Selection implements ExecutionCondition {
    private static final boolean COMBINED = Boolean.getBoolean("kafkasuite.combined");
    private static final boolean CONSUMER = Boolean.getBoolean("kafkasuite.consumer");

    @Override
    public ConditionEvaluationResult evaluateExecutionCondition(ExtensionContext context) {
        String name = context.getDisplayName();
        if (!COMBINED && name.contains("Raft-Combined")) return ConditionEvaluationResult.disabled("combined nodes are not selected");
        if (!CONSUMER && name.contains("groupProtocol=consumer")) return ConditionEvaluationResult.disabled("the protocol of KIP-848 is not selected");
        return ConditionEvaluationResult.enabled("");
    }
}
